// Tests of rows that the ranks of a tensor group divide, with a thread for each rank.
#include "ops/rank_rows/rank_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "backend/collective.h"
#include "core/error.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "program/tensor_store.h"
#include "program/text.h"
#include "support/rank_threads.h"

namespace hone {
namespace {

constexpr std::int64_t kRowCapacity = 7, kRowWidth = 3;

// Sums x over the ranks by rows, and gathers and takes the sums again.
Program program_of_rows(std::int64_t ranks, bool has_bias) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {{kRowCapacity, Count::tokens}, kRowWidth}});
  const Tensor bias = has_bias ? program.input("bias", {DType::kF32, {kRowWidth}}) : Tensor();
  const Tensor sum = sum_rank_rows(x, ranks, bias);
  const Tensor whole = gather_rank_rows(sum, {.ranks = ranks, .capacity = kRowCapacity, .entered = true});
  program.output("sum", sum);
  program.output("whole", whole);
  program.output("taken", take_rank_rows(whole, ranks));
  return program;
}

float addend_of(int rank, std::int64_t token, std::int64_t column) {
  return static_cast<float>(100 * rank + 10 * token + column + 1);
}

void expect_rows(Executable& executable, int size, int rank, std::int64_t tokens, bool has_bias) {
  const std::int64_t block = (kRowCapacity + size - 1) / size;
  std::vector<float> x(kRowCapacity * kRowWidth, 0.0f);
  std::vector<float> whole(x.size(), 0.0f);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < kRowWidth; ++c) {
      const auto at = static_cast<std::size_t>(t * kRowWidth + c);
      x[at] = addend_of(rank, t, c);
      for (int r = 0; r < size; ++r) whole[at] += addend_of(r, t, c);
      if (has_bias) whole[at] += static_cast<float>(c);
    }
  }
  std::vector<float> own(static_cast<std::size_t>(block * kRowWidth), 0.0f);
  const std::int64_t first = std::min(rank * block, kRowCapacity) * kRowWidth;
  const std::int64_t end = std::min((rank + 1) * block, kRowCapacity) * kRowWidth;
  std::copy(whole.begin() + first, whole.begin() + end, own.begin());
  executable.set_count(Count::tokens, tokens);
  executable.set<float>("x", x);
  if (has_bias) executable.set<float>("bias", std::vector<float>{0, 1, 2});
  executable.run();
  const auto output = [&](const char* name, std::size_t elements) {
    std::vector<float> values(elements);
    executable.get<float>(name, values);
    return values;
  };
  EXPECT_EQ(output("sum", own.size()), own) << "rank " << rank << " of " << size << ", " << tokens << " tokens";
  EXPECT_EQ(output("whole", whole.size()), whole) << "rank " << rank << " of " << size << ", " << tokens << " tokens";
  EXPECT_EQ(output("taken", own.size()), own) << "rank " << rank << " of " << size << ", " << tokens << " tokens";
}

// Runs with fewer and fewer tokens, so that rows of the run before would be seen.
void expect_rows(int size, int rank, bool has_bias) {
  Program program = program_of_rows(size, has_bias);
  EXPECT_EQ(to_text(program_from_text(to_text(program))), to_text(program));
  Executable executable(std::move(program), std::make_shared<Arena>(cpu_device()), {});
  for (const std::int64_t tokens : {7, 3, 0}) expect_rows(executable, size, rank, tokens, has_bias);
}

// Sizes that do and do not divide the capacity, and one with a rank that has no row (8 blocks of one row).
TEST(RankRows, AreThoseOfTheSum) {
  register_operations();
  for (const int size : {1, 2, 4, 7, 8}) {
    test::run_group(size, &MeshCollectives::tensor, [&](int rank) {
      for (const bool has_bias : {false, true}) expect_rows(size, rank, has_bias);
    });
  }
}

TEST(RankRows, OtherTypesAreRefused) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {kRowCapacity, kRowWidth}});
  EXPECT_THROW((void)sum_rank_rows(x, 2), Error);                                                  // no rows of tokens
  EXPECT_THROW((void)take_rank_rows(x, 2), Error);                                                 // the same
  EXPECT_THROW((void)gather_rank_rows(x, {.ranks = 2, .capacity = 16, .entered = false}), Error);  // of 8 rows each
}

// The gradient of a weight that all ranks have, of which each has rows: an addend in f32 is added to a sum in bf16.
TEST(Ranks, GradientsAreAddedToASumOfTheirOrANarrowerType) {
  register_operations();
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    test::run_group(2, &MeshCollectives::tensor, [&](int rank) {
      const Program program = program_from_text(text_of("%0: f32[3] = input \"dy\"\n%1: ", name_of(dtype),
                                                        "[3] = gradient \"w\"\n%2: ", name_of(dtype),
                                                        "[3] = ranks_accumulate(%0, %1) backward\n"));
      const TensorStore gradients(cpu_device(), std::vector<NamedType>{{"w", {dtype, {3}}}});
      Executable executable(program, std::make_shared<Arena>(cpu_device()), {.gradients = &gradients});
      // 1 + 2^-7 + 2^-9 is no number of bf16; the sum is rounded in each run.
      const float small = 1.0f / 512;
      for (int run = 0; run < 2; ++run) {
        executable.set<float>("dy", std::vector<float>{rank == 0 ? 1.0f + 4 * small : small, 2.0f, 0.0f});
        executable.run();
      }
      const std::vector<std::byte> bytes = gradients.download("w");
      const bool is_wide = dtype == DType::kF32;
      for (std::size_t i = 0; i < 3; ++i) {
        const float sum = is_wide ? reinterpret_cast<const float*>(bytes.data())[i]
                                  : static_cast<float>(reinterpret_cast<const BFloat16*>(bytes.data())[i]);
        EXPECT_EQ(sum, (std::vector<float>{is_wide ? 2 + 10 * small : 2.015625f, 8, 0})[i]) << i;
      }
    });
  }
}

}  // namespace
}  // namespace hone
