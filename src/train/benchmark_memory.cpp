#include "train/benchmark_memory.h"

#include <algorithm>

#include "model/weights.h"
#include "workspace/workspace.h"

namespace hone {
namespace {

constexpr std::int64_t kLongest = 32768;   // tokens of prompt and answer, where the model knows as many
constexpr std::int64_t kWholeAnswers = 4;  // of that length, for which there are pages

}  // namespace

EngineOptions benchmark_engine(const Model& model) {
  EngineOptions options;
  options.max_model_len = std::min(model.shape().max_position_embeddings, kLongest);
  const std::int64_t pages = (options.max_model_len + options.block_size - 1) / options.block_size;
  options.num_blocks = std::min(options.max_num_seqs, kWholeAnswers) * pages;
  return resolved(options);
}

std::size_t benchmark_bytes(const Model& model, DType dtype, DeviceKind device) {
  Workspace workspace(device);
  workspace.add_weights(kWeightStore, weight_types(model, dtype));
  add_generation(workspace, model, dtype, benchmark_engine(model));
  const MemoryBreakdown memory = workspace.memory();
  return memory.total() - memory.weights;
}

}  // namespace hone
