#include "job/tensor_group.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "model/tensor_parallel_model.h"
#include "model/weight_layout.h"
#include "ops/registry.h"
#include "support/rank_threads.h"
#include "train/loss_program.h"

namespace hone::test {
namespace {

HostBatch micro_batch() { return batch_of(random_documents(3, std::vector{17, 5, 30}, 308)); }

std::unique_ptr<Model> part_of_group(const MakeModel& make, int rank, const TensorGroup& group) {
  if (group.size == 1) return make();
  return std::make_unique<TensorParallelModel>(make(), rank, group.size, group.rows);
}

Program program_of(const Model& model, const TensorGroup& group) {
  const HostBatch batch = micro_batch();
  LossProgramOptions options;
  options.capacity = {batch.token_count() + group.more_capacity, batch.document_count()};
  options.compile.recompute = group.recompute;
  options.compile.activation_budget = group.budget;
  return trace_training(model, options);
}

RankLosses run_model(const Model& model, const TensorGroup& group) {
  const HostBatch batch = micro_batch();
  return run_losses(program_of(model, group), model, {&batch, 1}, 1.0 / static_cast<double>(batch.target_tokens));
}

}  // namespace

Configs dense_families() {
  return {{"llama", SmallModel{.type = "llama"}.config()},
          {"llama tied", SmallModel{.type = "llama", .tied = true}.config()},
          {"llama odd", SmallModel{.type = "llama", .vocabulary = 309}.config()},
          {"qwen2", SmallModel{.type = "qwen2"}.config()},
          {"qwen3", SmallModel{.type = "qwen3", .tied = true}.config()},
          {"gpt2", SmallModel{.type = "gpt2"}.config()},
          {"gpt2 odd", SmallModel{.type = "gpt2", .vocabulary = 309}.config()}};
}

RankLosses tensor_group(const std::string& config, const TensorGroup& group) {
  return tensor_group([&] { return model_of(config); }, group);
}

RankLosses tensor_group(const MakeModel& make, const TensorGroup& group) {
  register_operations();
  const std::unique_ptr<Model> model = make();
  if (group.size == 1) return run_model(*model, group);
  std::vector<RankLosses> of_rank(static_cast<std::size_t>(group.size));
  run_group(group.size, &MeshCollectives::tensor, [&](int rank) {
    of_rank[static_cast<std::size_t>(rank)] = run_model(*part_of_group(make, rank, group), group);
  });
  RankLosses all{.sums = of_rank[0].sums, .gradients = {}};
  for (int rank = 0; rank < group.size; ++rank) {
    const RankLosses& own = of_rank[static_cast<std::size_t>(rank)];
    EXPECT_EQ(own.sums, all.sums) << "rank " << rank << " has other bits";
    for (const WeightSpec& spec : model->weights()) {
      const WeightSpec part = part_spec(spec, rank, group.size);
      const std::vector<float>& values = own.gradients.at(spec.name);
      std::vector<float>& whole = all.gradients[spec.name];
      if (rank > 0 && !is_divided(part)) {
        EXPECT_EQ(values, whole) << spec.name << " differs between ranks";
      }
      whole.resize(static_cast<std::size_t>(spec.shape[0] * row_elements(spec)));
      put_part(part, spec, sizeof(float), std::as_bytes(std::span(values)), std::as_writable_bytes(std::span(whole)));
    }
  }
  return all;
}

Program training_program(const std::string& config, const TensorGroup& group) {
  register_operations();
  return program_of(*part_of_group([&] { return model_of(config); }, 0, group), group);
}

}  // namespace hone::test
