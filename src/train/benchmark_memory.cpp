#include "train/benchmark_memory.h"

#include "model/weights.h"
#include "workspace/workspace.h"

namespace hone {
namespace {

constexpr std::int64_t kWholeAnswers = 4;  // requests of the greatest length that the KV cache holds

}  // namespace

EngineOptions benchmark_engine(const Model& model) {
  return engine_options({.max_model_len = model_len(model.shape(), 0, kLongestAnswer), .full_length = kWholeAnswers});
}

std::size_t benchmark_bytes(const Model& model, DType dtype, DeviceKind device) {
  Workspace workspace(device);
  workspace.add_weights(kWeightStore, weight_types(model, dtype));
  add_generation(workspace, model, dtype, benchmark_engine(model));
  const MemoryBreakdown memory = workspace.memory();
  return memory.total() - memory.weights;
}

}  // namespace hone
