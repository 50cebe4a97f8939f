// Tests of the operations on shares of tensors, and of the norm of divided gradients, with a thread for each rank.
#include "ops/shards/shards.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "backend/collective.h"
#include "core/random.h"
#include "ops/gradient_norm/gradient_norm.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "program/text.h"
#include "support/rank_threads.h"

namespace hone {
namespace {

// Runs work(rank) on threads that are the ranks of a data group.
void run_data_group(int size, const std::function<void(int rank)>& work) {
  register_operations();
  test::run_group(size, &MeshCollectives::data, work);
}

std::vector<float> numbers_of(int seed, std::int64_t count) {
  const RandomStream random(static_cast<std::uint64_t>(seed), "numbers");
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(random.uniform(i) - 0.5);
  return numbers;
}

std::span<const float> rows_of(const std::vector<float>& whole, const RowCuts& cuts, int rank) {
  const auto row = static_cast<std::size_t>(cuts.whole.row_size());
  const auto first = static_cast<std::size_t>(cuts.cuts[static_cast<std::size_t>(rank)]);
  const auto end = static_cast<std::size_t>(cuts.cuts[static_cast<std::size_t>(rank) + 1]);
  return std::span(whole).subspan(first * row, (end - first) * row);
}

const std::vector<RowCuts> kCuts{{{DType::kF32, {7, 3}}, {0, 2, 2, 7}}, {{DType::kF32, {5}}, {0, 5, 5, 5}}};

TEST(Shards, GatheredTensorsAreWhole) {
  const std::vector<std::vector<float>> wholes{numbers_of(1, 21), numbers_of(2, 5)};
  run_data_group(3, [&](int rank) {
    Program program;
    std::vector<Tensor> shares;
    for (std::size_t i = 0; i < kCuts.size(); ++i)
      shares.push_back(program.input(text_of("share ", i), share_of(kCuts[i], rank)));
    const std::vector<Tensor> gathered = wait_for_shares(gather_shares(shares, kCuts, 0), 0);
    for (std::size_t i = 0; i < kCuts.size(); ++i) program.output(text_of("whole ", i), gathered[i]);
    EXPECT_EQ(to_text(program_from_text(to_text(program))), to_text(program));
    Executable executable(std::move(program), std::make_shared<Arena>(cpu_device()), {});
    for (std::size_t i = 0; i < kCuts.size(); ++i) {
      executable.set<float>(text_of("share ", i), rows_of(wholes[i], kCuts[i], rank));
    }
    executable.run();
    for (std::size_t i = 0; i < kCuts.size(); ++i) {
      std::vector<float> seen(wholes[i].size());
      executable.get<float>(text_of("whole ", i), seen);
      EXPECT_EQ(seen, wholes[i]) << "rank " << rank;
    }
  });
}

TEST(Shards, SumsAreAddedToTheOwnersRows) {
  run_data_group(3, [&](int rank) {
    Program program;
    std::vector<Tensor> whole;
    std::vector<Tensor> shares;
    std::vector<NamedType> types;
    for (std::size_t i = 0; i < kCuts.size(); ++i) {
      // In a job the whole gradients are activations, into which nodes accumulate.
      types.push_back({text_of("whole ", i), kCuts[i].whole});
      types.push_back({text_of("share ", i), share_of(kCuts[i], rank)});
      whole.push_back(program.state(types[2 * i].name, types[2 * i].type));
      shares.push_back(program.state(types[2 * i + 1].name, types[2 * i + 1].type));
    }
    const std::vector<Tensor> sums = sum_shares(whole, kCuts, 1);
    (void)add_shares(sums, shares, kCuts, 1);
    TensorStore states(cpu_device(), types);
    for (std::size_t i = 0; i < kCuts.size(); ++i) {
      const std::vector<float> own = numbers_of(rank, kCuts[i].whole.elements());
      const std::vector<float> before = numbers_of(100, kCuts[i].whole.elements());
      states.upload(types[2 * i].name, std::as_bytes(std::span(own)));
      states.upload(types[2 * i + 1].name, std::as_bytes(rows_of(before, kCuts[i], rank)));
    }
    Executable executable(std::move(program), std::make_shared<Arena>(cpu_device()), {.states = &states});
    executable.run();
    for (std::size_t i = 0; i < kCuts.size(); ++i) {
      std::vector<float> expected = numbers_of(0, kCuts[i].whole.elements());
      for (int r = 1; r < 3; ++r) {
        const std::vector<float> more = numbers_of(r, kCuts[i].whole.elements());
        for (std::size_t k = 0; k < more.size(); ++k) expected[k] += more[k];
      }
      const std::vector<float> before = numbers_of(100, kCuts[i].whole.elements());
      for (std::size_t k = 0; k < before.size(); ++k) expected[k] = before[k] + expected[k];
      const std::vector<std::byte> seen = states.download(types[2 * i + 1].name);
      const std::span<const float> rows = rows_of(expected, kCuts[i], rank);
      EXPECT_TRUE(std::ranges::equal(std::as_bytes(rows), seen)) << "rank " << rank << ", tensor " << i;
    }
  });
}

TEST(Shards, WrongSharesAreRefused) {
  register_operations();
  Program program;
  const std::vector<Tensor> wide{program.input("a", {DType::kF32, {2, 4}}), program.input("b", {DType::kF32, {5}})};
  EXPECT_THROW((void)gather_shares(wide, kCuts, 0), Error);
  const std::vector<RowCuts> gaps{{{DType::kF32, {4}}, {0, 3}}};
  const std::vector<Tensor> share{program.input("c", {DType::kF32, {3}})};
  EXPECT_THROW((void)gather_shares(share, gaps, 0), Error);
}

// The norm of whole gradients.
float norm_of(const std::vector<std::vector<float>>& gradients) {
  Program program;
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    tensors.push_back(program.input(text_of("g", i), {DType::kF32, {static_cast<std::int64_t>(gradients[i].size())}}));
  }
  program.output("norm", gradient_norm(tensors));
  Executable executable(std::move(program), std::make_shared<Arena>(cpu_device()), {});
  for (std::size_t i = 0; i < gradients.size(); ++i) executable.set<float>(text_of("g", i), gradients[i]);
  executable.run();
  float norm = 0;
  executable.get<float>("norm", {&norm, 1});
  return norm;
}

TEST(Shards, TheNormOfDividedGradientsHasTheSameBits) {
  register_operations();
  const std::vector<std::vector<float>> gradients{numbers_of(1, 5 * kNormBlock + 77), numbers_of(2, 1000),
                                                  numbers_of(3, 2 * kNormBlock)};
  // Elements at which the ranks' rows begin; the second gradient has one owner.
  const std::vector<std::vector<std::int64_t>> cuts{{0, 2 * kNormBlock, 3 * kNormBlock, 5 * kNormBlock + 77},
                                                    {0, 0, 1000, 1000},
                                                    {0, kNormBlock, 2 * kNormBlock, 2 * kNormBlock}};
  const float expected = norm_of(gradients);
  run_data_group(3, [&](int rank) {
    Program program;
    std::vector<GradientShare> shares;
    const auto r = static_cast<std::size_t>(rank);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const Tensor rows = program.input(text_of("g", i), {DType::kF32, {cuts[i][r + 1] - cuts[i][r]}});
      shares.push_back({rows, cuts[i][r], static_cast<std::int64_t>(gradients[i].size())});
    }
    program.output("norm", divided_gradient_norm(shares));
    Executable executable(std::move(program), std::make_shared<Arena>(cpu_device()), {});
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::size_t begin = static_cast<std::size_t>(cuts[i][r]);
      const std::size_t end = static_cast<std::size_t>(cuts[i][r + 1]);
      executable.set<float>(text_of("g", i), std::span(gradients[i]).subspan(begin, end - begin));
    }
    executable.run();
    float norm = 0;
    executable.get<float>("norm", {&norm, 1});
    EXPECT_EQ(norm, expected) << "rank " << rank;
  });
}

}  // namespace
}  // namespace hone
