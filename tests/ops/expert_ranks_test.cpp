// Tests of the exchange of rows between the ranks of an expert group, with a thread for each rank.
#include "ops/expert_ranks/expert_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "backend/collective.h"
#include "core/random.h"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/expert_order/expert_order.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "program/text.h"
#include "support/rank_threads.h"

namespace hone {
namespace {

constexpr std::int64_t kMixTokens = 9, kMixTopK = 3, kMixExperts = 8, kMixWidth = 2;

// Runs work(rank) on threads that are the ranks of an expert group.
void run_expert_group(int size, const std::function<void(int rank)>& work) {
  register_operations();
  test::run_group(size, &MeshCollectives::experts, work);
}

// The different experts that a rank's tokens choose; `one_rank`: all of them among the first kMixTopK.
std::vector<std::int32_t> choices_of(int rank, bool one_rank) {
  const RandomStream random(static_cast<std::uint64_t>(rank), "choices");
  std::vector<std::int32_t> choices;
  for (std::int64_t t = 0; t < kMixTokens; ++t) {
    const auto first = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(t), kMixExperts));
    for (std::int32_t j = 0; j < kMixTopK; ++j) choices.push_back(one_rank ? j : (first + 3 * j) % kMixExperts);
  }
  return choices;
}

// A program that sends the rows of a rank's tokens and takes them back.
Program exchange_program(std::int64_t ranks) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {{kMixTokens, Count::tokens}, kMixWidth}});
  const Tensor expert = program.input("expert", {DType::kI32, {{kMixTokens, Count::tokens}, kMixTopK}});
  const ExpertOrder order = expert_order(expert, {.experts = kMixExperts});
  const ExpertRanksAttributes attributes{.experts = kMixExperts, .ranks = ranks, .count = "expert_rows_0"};
  const ExpertRanksStart start = exchange_starts(order.start, attributes);
  program.count(Count("expert_rows_0"), ranks * most_rows_to_rank(order.position.type(), attributes), start.rows);
  const Tensor rows = expert_dispatch(x, order.position);
  const Tensor sent = send_to_experts(rows, order.position, start, attributes);
  program.output("rows", rows);
  program.output("own", start.own);
  program.output("sent", sent);
  program.output("back", return_from_experts(sent, order.position, start, attributes));
  return program;
}

// The number in every column of a token's row.
float token_value(int rank, std::int64_t token) { return static_cast<float>(100 * rank + token + 1); }

TEST(ExpertRanks, RowsAreOrderedByExpertRankAndToken) {
  for (const int size : {2, 4}) {
    for (const bool one_rank : {false, true}) {
      run_expert_group(size, [&](int rank) {
        // Ranks have different numbers of tokens, the second none.
        const auto tokens_of = [](int r) { return r == 1 ? std::int64_t{0} : kMixTokens - r; };
        Program program = exchange_program(size);
        EXPECT_EQ(to_text(program_from_text(to_text(program))), to_text(program));
        const std::int64_t capacity = size * kMixTokens * std::min<std::int64_t>(kMixTopK, kMixExperts / size);
        Executable executable(std::move(program), std::make_shared<Arena>(cpu_device()), {});
        for (int turn = 0; turn < 2; ++turn) {
          std::vector<float> x(kMixTokens * kMixWidth, 0.0f);
          for (std::int64_t t = 0; t < tokens_of(rank); ++t) {
            std::fill_n(x.begin() + t * kMixWidth, kMixWidth, token_value(rank, t));
          }
          executable.set_count(Count::tokens, tokens_of(rank));
          executable.set<float>("x", x);
          executable.set<std::int32_t>("expert", choices_of(rank, one_rank));
          executable.run();
          std::vector<float> expected;
          std::vector<std::int32_t> own{0};
          const std::int64_t experts = kMixExperts / size;
          for (std::int64_t e = rank * experts; e < (rank + 1) * experts; ++e) {
            for (int from = 0; from < size; ++from) {
              const std::vector<std::int32_t> choices = choices_of(from, one_rank);
              for (std::int64_t i = 0; i < tokens_of(from) * kMixTopK; ++i) {
                if (choices[static_cast<std::size_t>(i)] != e) continue;
                expected.insert(expected.end(), kMixWidth, token_value(from, i / kMixTopK));
              }
            }
            own.push_back(static_cast<std::int32_t>(expected.size() / kMixWidth));
          }
          ASSERT_LE(expected.size(), static_cast<std::size_t>(capacity * kMixWidth));
          expected.resize(static_cast<std::size_t>(capacity * kMixWidth), 0.0f);
          std::vector<float> sent(expected.size());
          executable.get<float>("sent", sent);
          EXPECT_EQ(sent, expected) << "rank " << rank << " of " << size;
          std::vector<std::int32_t> seen(own.size());
          executable.get<std::int32_t>("own", seen);
          EXPECT_EQ(seen, own) << "rank " << rank << " of " << size;
          std::vector<float> rows(kMixTokens * kMixTopK * kMixWidth);
          std::vector<float> back(rows.size());
          executable.get<float>("rows", rows);
          executable.get<float>("back", back);
          EXPECT_EQ(back, rows) << "rank " << rank << " of " << size;
        }
      });
    }
  }
}

// If all tokens choose as many experts of one rank as they can, its rows take all of their capacity: it is not larger
// than needed. Of 8 ranks each has one expert, fewer than a token chooses.
TEST(ExpertRanks, TheCapacityIsThatOfTheWorstCase) {
  for (const int size : {2, 4, 8}) {
    run_expert_group(size, [&](int rank) {
      Executable executable(exchange_program(size), std::make_shared<Arena>(cpu_device()), {});
      executable.set_count(Count::tokens, kMixTokens);
      executable.set<float>("x", std::vector<float>(kMixTokens * kMixWidth, 1.0f));
      executable.set<std::int32_t>("expert", choices_of(rank, true));
      executable.run();
      const std::int64_t experts = kMixExperts / size;
      const std::int64_t chosen = std::clamp<std::int64_t>(kMixTopK - rank * experts, 0, experts);
      const Type& type = executable.program().value(executable.program().outputs()[2].value).type;
      std::vector<float> expected(static_cast<std::size_t>(type.elements()), 0.0f);
      std::fill_n(expected.begin(), size * kMixTokens * chosen * kMixWidth, 1.0f);
      std::vector<float> sent(expected.size());
      executable.get<float>("sent", sent);
      EXPECT_EQ(sent, expected) << "rank " << rank << " of " << size;
      if (rank > 0) return;
      EXPECT_EQ(sent, std::vector<float>(sent.size(), 1.0f)) << size << " ranks";
    });
  }
}

TEST(ExpertRanks, WrongGroupsAreRefused) {
  register_operations();
  Program program;
  const Tensor start = program.input("start", {DType::kI32, {kMixExperts + 1}});
  EXPECT_THROW((void)exchange_starts(start, {.experts = kMixExperts, .ranks = 3, .count = "expert_rows_0"}), Error);
  EXPECT_THROW((void)exchange_starts(start, {.experts = 4, .ranks = 2, .count = "expert_rows_0"}), Error);
}

}  // namespace
}  // namespace hone
