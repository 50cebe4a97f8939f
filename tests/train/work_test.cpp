// FLOPs of batches whose documents have known lengths.
#include <gtest/gtest.h>

#include "support/models.h"
#include "train/loss_program.h"

namespace hone::test {
namespace {

HostBatch documents_of(const std::vector<std::size_t>& lengths) {
  std::vector<std::vector<TokenId>> documents;
  for (const std::size_t length : lengths) documents.emplace_back(length, 1);
  return batch_of(documents);
}

// The cost of the program that has room for these tokens as one document.
double flops_as_one(const FixtureModel& fixture, std::int64_t tokens) {
  return trace_training(*fixture.model, {.capacity = {tokens, 1}}).cost().flops;
}

TEST(Work, IsThatOfTheDocumentsNotOfTheCapacity) {
  const FixtureModel fixture("qwen3");
  const Program program = trace_training(*fixture.model, {.capacity = {96, 8}});
  EXPECT_GT(program.cost().pair_flops, 0);
  EXPECT_LT(program.cost().pair_flops, program.cost().flops);
  const BatchWork work = work_of(program, 96);
  const double whole = work.flops(documents_of({96}));
  EXPECT_NEAR(whole, program.cost().flops, 1e-9 * whole)
      << "a batch that fills the capacity costs what the program says";
  // Attention of a shorter document is that of a shorter program.
  EXPECT_NEAR(work.flops(documents_of({96})) - work.flops(documents_of({48, 48})),
              flops_as_one(fixture, 96) - 2 * flops_as_one(fixture, 48), 1e-6 * whole);
  EXPECT_NEAR(work.flops(documents_of({40, 8})), work.flops(documents_of({40})) + work.flops(documents_of({8})),
              1e-9 * whole);
  EXPECT_GT(work.flops(documents_of({48})), work.flops(documents_of({24, 24})));
}

}  // namespace
}  // namespace hone::test
