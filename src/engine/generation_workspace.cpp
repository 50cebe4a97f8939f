#include "engine/generation_workspace.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "engine/engine.h"
#include "engine/generation_program.h"
#include "model/weights.h"

namespace hone {

namespace {

const StoreSpec* store_named(const Workspace& workspace, std::string_view name) {
  const auto found = std::ranges::find(workspace.stores(), name, &StoreSpec::name);
  return found == workspace.stores().end() ? nullptr : &*found;
}

void add_programs(Workspace& workspace, const Model& model, DType dtype, const EngineOptions& options) {
  for (const Capacity& capacity : engine_capacities(options)) {
    workspace.add(program_name(capacity),
                  trace_generation(model, {.capacity = capacity,
                                           .layout = kv_layout(options),
                                           .max_num_seqs = options.max_num_seqs,
                                           .max_samples = max_samples(options),
                                           .dtype = dtype,
                                           .adjust_logits = options.adjust_logits,
                                           .max_logprobs = options.max_logprobs}),
                  {.phase = Region::kRollout, .states = {.name = kKvStore, .region = Region::kRollout}});
  }
}

// Number of blocks with which rollouts take no more memory than training: at least options.num_blocks, at most what
// max_num_seqs requests of max_model_len need.
std::int64_t blocks_in_training_memory(const Workspace& workspace, const Model& model, DType dtype,
                                       const EngineOptions& options) {
  const StoreSpec* weights = store_named(workspace, kWeightStore);
  HONE_ASSERT(weights != nullptr, "the workspace has no weights");
  Workspace least(workspace.device_kind());
  least.add_weights(kWeightStore, weights->tensors);
  add_programs(least, model, dtype, options);
  const std::size_t block = store_named(least, kKvStore)->bytes() / static_cast<std::size_t>(options.num_blocks);
  const std::size_t given = workspace.phase_bytes(Region::kTrain);
  const std::size_t taken = least.phase_bytes(Region::kRollout);
  const auto more = given > taken ? static_cast<std::int64_t>((given - taken) / block) : 0;
  return std::min(options.num_blocks + more,
                  std::max(options.num_blocks, kv_layout(options).max_blocks * options.max_num_seqs));
}

}  // namespace

std::string program_name(const Capacity& capacity) { return text_of("generation of ", capacity.tokens, " tokens"); }

EngineOptions with_blocks_of(const Workspace& workspace, EngineOptions options) {
  const StoreSpec* cache = store_named(workspace, kKvStore);
  HONE_ASSERT(cache != nullptr, "the workspace has no KV cache");
  const auto keys = std::ranges::find(cache->tensors, KvLayout::key_name(0), &NamedType::name);
  HONE_ASSERT(keys != cache->tensors.end(), "the KV cache has no keys");
  options.num_blocks = keys->type.rows();
  return options;
}

void add_generation(Workspace& workspace, const Model& model, DType dtype, const EngineOptions& given) {
  EngineOptions options = resolved(given);
  check_positions(model.shape(), options.max_model_len, "max_model_len");
  if (workspace.shares_training_memory_with_rollouts()) {
    options.num_blocks = blocks_in_training_memory(workspace, model, dtype, options);
  }
  add_programs(workspace, model, dtype, options);
}

std::unique_ptr<Workspace> workspace_of(const Model& model, const TensorStore& weights,
                                        const std::shared_ptr<Arena>& arena, const EngineOptions& options) {
  auto workspace = std::make_unique<Workspace>(arena);
  workspace->add_weights(kWeightStore, weights.tensors());
  add_generation(*workspace, model, model_dtype(model, weights), options);
  workspace->provide(kWeightStore, weights.view());
  workspace->allocate(arena->device());
  return workspace;
}

}  // namespace hone
