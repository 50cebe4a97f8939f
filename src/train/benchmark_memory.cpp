#include "train/benchmark_memory.h"

#include "engine/generation_program.h"
#include "train/memory.h"

namespace hone {
namespace {

constexpr std::int64_t kWholeAnswers = 4;  // of the greatest length, for which there are pages

}  // namespace

EngineOptions benchmark_engine(const Model& model) {
  return engine_options({.max_model_len = model_len(model.shape(), 0, kLongestAnswer), .full_length = kWholeAnswers});
}

std::size_t benchmark_bytes(const Model& model, DType dtype, DeviceKind device) {
  const EngineOptions options = benchmark_engine(model);
  const KvLayout layout = kv_layout(options);
  MemoryBreakdown memory;
  memory.kv_cache = TensorStore::bytes_of(kv_types(model, layout, dtype));
  for (const Capacity& capacity : engine_capacities(options)) {
    memory.add_program(
        plan_memory(trace_generation(model, {.capacity = capacity, .layout = layout, .dtype = dtype}), device));
  }
  return memory.total();
}

}  // namespace hone
