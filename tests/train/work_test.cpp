// FLOPs of batches with documents of known lengths.
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

// Returns the FLOPs of a program whose capacity is one document of these tokens.
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
      << "a batch that fills the capacity costs as much as the program";
  // Attention in a shorter document costs as much as in a program with a smaller capacity.
  EXPECT_NEAR(work.flops(documents_of({96})) - work.flops(documents_of({48, 48})),
              flops_as_one(fixture, 96) - 2 * flops_as_one(fixture, 48), 1e-6 * whole);
  EXPECT_NEAR(work.flops(documents_of({40, 8})), work.flops(documents_of({40})) + work.flops(documents_of({8})),
              1e-9 * whole);
  EXPECT_GT(work.flops(documents_of({48})), work.flops(documents_of({24, 24})));
}

}  // namespace
}  // namespace hone::test
