// Gradients of experts that the first micro-batch overwrites, on several processes with whole experts.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "support/rank_threads.h"
#include "train/trained_mixture.h"

namespace hone::test {
namespace {

// Returns the weights of rank 0 after steps in which ranks have one, several and no micro-batches, as those of grpo
// may.
std::vector<std::byte> weights_of_job(bool overwrites) {
  // Built one after the other, because a workspace compares what the device holds with its plan.
  std::array<std::unique_ptr<TrainedMixture>, 2> runs;
  for (auto& run : runs) run = std::make_unique<TrainedMixture>(MixtureRunOptions{.dtype = DType::kF32}, overwrites);
  run_ranks(2, [&](Collective& collective) {
    TrainedMixture& run = *runs[static_cast<std::size_t>(collective.rank())];
    run.optimizer().join(collective);
    const std::vector<std::vector<std::int64_t>> steps[] = {
        {{8}, {2, 3}}, {{2}, {}}, {{}, {}}, {{}, {3, 2}}, {{8}, {2}}};
    for (const std::vector<std::vector<std::int64_t>>& step : steps) {
      EXPECT_TRUE(run.step(step[static_cast<std::size_t>(collective.rank())]));
    }
  });
  return runs[0]->weights();
}

TEST(OverwrittenGradientsJob, RanksMayHaveNoMicroBatch) {
  const std::vector<std::byte> clearing = weights_of_job(false);
  EXPECT_FALSE(clearing.empty());
  EXPECT_TRUE(weights_of_job(true) == clearing);
}

}  // namespace
}  // namespace hone::test
