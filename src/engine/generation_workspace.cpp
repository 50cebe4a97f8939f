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

void add_program(Workspace& workspace, const Model& model, DType dtype, const EngineOptions& options,
                 const StepCapacity& capacity) {
  workspace.add(program_name(capacity),
                trace_generation(model, {.capacity = capacity,
                                         .layout = kv_layout(options),
                                         .max_num_seqs = options.max_num_seqs,
                                         .max_samples = max_samples(options),
                                         .dtype = dtype,
                                         .adjust_logits = options.adjust_logits,
                                         .max_logprobs = options.max_logprobs,
                                         .predicts_further = options.drafts_by_prediction()}),
                {.phase = Region::kRollout,
                 .states = {.name = kKvStore, .region = Region::kRollout},
                 .inputs = "inputs of generation"});
}

void add_programs(Workspace& workspace, const Model& model, DType dtype, const EngineOptions& options) {
  for (const StepCapacity& capacity : engine_capacities(options, workspace.device_kind()))
    add_program(workspace, model, dtype, options, capacity);
}

// Number of blocks with which rollouts take no more memory than training: at least options.num_blocks, at most what
// max_num_seqs requests of max_model_len need.
std::int64_t blocks_in_training_memory(const Workspace& workspace, const Model& model, DType dtype,
                                       const EngineOptions& options) {
  const StoreSpec* weights = store_named(workspace, kWeightStore);
  HONE_ASSERT(weights != nullptr, "the workspace has no weights");
  const auto taken = [&](std::int64_t blocks) {
    EngineOptions with = options;
    with.num_blocks = blocks;
    Workspace rollouts(workspace.device_kind());
    rollouts.add_weights(kWeightStore, weights->tensors);
    add_programs(rollouts, model, dtype, with);
    return rollouts.phase_bytes(Region::kRollout);
  };
  const std::size_t given = workspace.phase_bytes(Region::kTrain);
  const std::size_t block = bytes_of_block(model, dtype, options, workspace.device_kind());
  const std::size_t least = taken(options.num_blocks);
  const std::int64_t most = std::max(options.num_blocks, kv_layout(options).max_blocks * options.max_num_seqs);
  const auto more = given > least ? static_cast<std::int64_t>((given - least) / block) : 0;
  std::int64_t blocks = std::min(options.num_blocks + more, most);
  // With latent rows a step's memory also depends on what else is in use when it expands them.
  while (kv_layout(options).expands() && blocks > options.num_blocks) {
    const std::size_t bytes = taken(blocks);
    if (bytes <= given) break;
    blocks = std::max(options.num_blocks, blocks - static_cast<std::int64_t>((bytes - given + block - 1) / block));
  }
  return blocks;
}

}  // namespace

std::size_t bytes_of_block(const Model& model, DType dtype, const EngineOptions& given, DeviceKind device) {
  EngineOptions options = given;
  const auto with = [&](std::int64_t blocks) {
    options.num_blocks = blocks;
    Workspace workspace(device);
    workspace.add_weights(kWeightStore, weight_types(model, dtype));
    add_program(workspace, model, dtype, options, engine_capacities(options, device).front());
    return workspace.phase_bytes(Region::kRollout);
  };
  // With few blocks, other memory of a step would hide that of expanded latent rows.
  const std::int64_t blocks = kv_layout(options).max_blocks * options.max_num_seqs;
  const std::size_t more = with(2 * blocks) - with(blocks);
  return (more + static_cast<std::size_t>(blocks) - 1) / static_cast<std::size_t>(blocks);
}

std::string program_name(const StepCapacity& capacity) {
  return text_of("generation of ", capacity.tokens, " tokens of ", capacity.requests, " requests");
}

EngineOptions with_blocks_of(const Workspace& workspace, EngineOptions options) {
  const StoreSpec* cache = store_named(workspace, kKvStore);
  HONE_ASSERT(cache != nullptr, "the workspace has no KV cache");
  const std::string name = options.cache.latent_kv_cache ? KvLayout::latent_name(0) : KvLayout::key_name(0);
  const auto first = std::ranges::find(cache->tensors, name, &NamedType::name);
  HONE_ASSERT(first != cache->tensors.end(), "the KV cache has no ", name);
  options.num_blocks = first->type.rows();
  return options;
}

void add_generation(Workspace& workspace, const Model& model, DType dtype, const EngineOptions& given) {
  EngineOptions options = resolved(given);
  check_model(options, model);
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
