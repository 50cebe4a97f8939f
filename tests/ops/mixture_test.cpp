// The operations of a mixture of experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "ops/expert_combine/expert_combine.h"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/expert_order/expert_order.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "ops/router/router.h"

namespace hone::test {
namespace {

// The indices of the `most` largest of `scores` among `allowed`, of equal ones the first.
std::vector<std::int64_t> largest(const Values& scores, std::vector<std::int64_t> allowed, std::int64_t most) {
  std::ranges::sort(allowed);
  std::ranges::stable_sort(allowed, [&](std::int64_t a, std::int64_t b) { return scores[a] > scores[b]; });
  allowed.resize(most);
  return allowed;
}

std::vector<std::int64_t> indices(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> all(end - begin);
  std::iota(all.begin(), all.end(), begin);
  return all;
}

// One token: appends its experts and weights.
void route(const Values& logits, const Values& bias, const RouterAttributes& a, Values& expert, Values& weight) {
  const auto n = static_cast<std::int64_t>(logits.size());
  Values scores(n);
  double total = 0;
  for (const double z : logits) total += std::exp(z);
  for (std::int64_t e = 0; e < n; ++e)
    scores[e] = a.sigmoid ? 1 / (1 + std::exp(-logits[e])) : std::exp(logits[e]) / total;
  Values ranked = scores;
  for (std::int64_t e = 0; e < n && !bias.empty(); ++e) ranked[e] += bias[e];
  const std::int64_t size = n / a.groups;
  Values by_group;
  for (std::int64_t g = 0; g < a.groups; ++g) {
    double sum = 0;
    for (const std::int64_t e : largest(ranked, indices(g * size, (g + 1) * size), a.group_depth)) sum += ranked[e];
    by_group.push_back(sum);
  }
  std::vector<std::int64_t> allowed;
  for (const std::int64_t g : largest(by_group, indices(0, a.groups), a.top_groups)) {
    const auto members = indices(g * size, (g + 1) * size);
    allowed.insert(allowed.end(), members.begin(), members.end());
  }
  const auto chosen = largest(ranked, allowed, a.top_k);
  double sum = 0;
  for (const std::int64_t e : chosen) sum += scores[e];
  for (const std::int64_t e : chosen) {
    expert.push_back(static_cast<double>(e));
    weight.push_back(scores[e] * a.factor / (a.normalize ? sum : 1.0));
  }
}

OpCase router_case(std::int64_t rows, std::int64_t experts, bool biased, const RouterAttributes& a,
                   const Values& logits = {}) {
  OpCase result{
      .name = text_of("router_", rows, "x", experts, "_", a.top_k, a.sigmoid ? "_sigmoid" : "", biased ? "_bias" : ""),
      .inputs = {{.name = "logits",
                  .type = {DType::kF32, {{rows, Count::tokens}, experts}},
                  .values = logits,
                  .keeps_dtype = true}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        const Routing routing = router(in[0], biased ? in[1] : Tensor(), a);
        return {routing.expert, routing.weight};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values expert;
            Values weight;
            for (std::int64_t t = 0; t < rows; ++t) {
              const auto begin = in[0].begin() + t * experts;
              route(Values(begin, begin + experts), biased ? in[1] : Values{}, a, expert, weight);
            }
            return std::vector<Values>{expert, weight};
          },
      .seeded = {false, true},
  };
  if (biased) {
    result.inputs.push_back(
        {.name = "bias", .type = {DType::kF32, {experts}}, .differentiable = false, .keeps_dtype = true});
  }
  return result;
}

TEST(Router, Cases) {
  check(router_case(1, 1, false, {}));
  check(router_case(9, 8, false, {.top_k = 2}));
  check(router_case(9, 8, false, {.top_k = 3, .normalize = true}));
  check(router_case(5, 40, false, {.top_k = 6, .groups = 4, .top_groups = 2, .factor = 16.0}));
  check(router_case(
      7, 24, true,
      {.top_k = 4, .sigmoid = true, .groups = 6, .top_groups = 3, .group_depth = 2, .normalize = true, .factor = 2.5}));
  check(router_case(4, 6, true, {.top_k = 6, .sigmoid = true}));
}

TEST(Router, OfEqualScoresTheLowestIndexWins) {
  OpCase equal =
      router_case(2, 6, false, {.top_k = 3, .groups = 3, .top_groups = 2}, {1, 1, 1, 1, 1, 1, 0, 2, 2, 0, 2, 2});
  equal.seeded = {false, false};
  check(equal);
}

TEST(Router, RefusesWhatDoesNotFit) {
  Program program;
  const Tensor logits = program.input("logits", {DType::kF32, {4, 12}});
  EXPECT_NO_THROW((void)router(logits, {}, {.top_k = 6, .groups = 4, .top_groups = 2}));
  EXPECT_THROW((void)router(logits, {}, {.top_k = 7, .groups = 4, .top_groups = 2}), Error);
  EXPECT_THROW((void)router(logits, {}, {.top_k = 2, .groups = 5}), Error);
  EXPECT_THROW((void)router(logits, {}, {.top_k = 2, .groups = 4, .top_groups = 5}), Error);
  EXPECT_THROW((void)router(logits, {}, {.top_k = 2, .groups = 4, .group_depth = 4}), Error);
  EXPECT_THROW((void)router(logits, {}, {.top_k = 0}), Error);
}

// Choices of 5 tokens among 4 experts, one of which has none; of the first 3 tokens with the lower count.
const Values kChoices{2, 0, 0, 3, 3, 2, 0, 2, 2, 0};

// Rows in order: expert, then token.
Values positions(const Values& choices, std::int64_t used) {
  std::vector<std::int64_t> order(used);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return choices[a] < choices[b]; });
  Values position(choices.size());
  for (std::int64_t row = 0; row < used; ++row) position[order[row]] = static_cast<double>(row);
  return position;
}

TEST(ExpertOrder, Cases) {
  check({.name = "expert_order",
         .inputs = {{.name = "expert", .type = {DType::kI32, {{5, Count::tokens}, 2}}, .values = kChoices}},
         .below = {{Count::tokens, 3}},
         .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
           const ExpertOrder order = expert_order(in[0], {.experts = 4});
           return {order.position, order.start};
         },
         .reference =
             [](std::span<const Values>, const Counts& counts) {
               const std::int64_t used = 2 * rows_in_use(counts, Count::tokens, 5);
               Values load(4);
               for (std::int64_t i = 0; i < used; ++i) load[static_cast<std::size_t>(kChoices[i])] += 1;
               Values start{0};
               for (const double n : load) start.push_back(start.back() + n);
               return std::vector<Values>{positions(kChoices, used), start};
             },
         .seeded = {false, false}});
}

// y = W_e x by the experts of each row, and back to the tokens: the four operations together. `choices` has `top_k`
// experts for each token.
OpCase mixture_case(std::string name, std::int64_t experts, std::int64_t n, std::int64_t k, std::int64_t top_k,
                    const Values& choices) {
  const auto tokens = static_cast<std::int64_t>(choices.size()) / top_k;
  return {.name = std::move(name),
          .inputs = {{"x", {DType::kF32, {{tokens, Count::tokens}, k}}},
                     {.name = "weight", .type = {DType::kF32, {experts * n, k}}, .weight = true},
                     {.name = "expert", .type = {DType::kI32, {{tokens, Count::tokens}, top_k}}, .values = choices},
                     {.name = "factor", .type = {DType::kF32, {{tokens, Count::tokens}, top_k}}, .keeps_dtype = true}},
          .below = {{Count::tokens, (tokens + 1) / 2}},
          .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
            const ExpertOrder order = expert_order(in[2], {.experts = experts});
            const Tensor rows = expert_dispatch(in[0], order.position);
            const Tensor y = grouped_linear(rows, in[1], order.start, {.experts = experts});
            return {expert_combine(y, in[3], order.position)};
          },
          .reference =
              [=](std::span<const Values> in, const Counts&) {
                Values out(tokens * n);
                for (std::int64_t t = 0; t < tokens * top_k; ++t) {
                  const auto e = static_cast<std::int64_t>(choices[t]);
                  for (std::int64_t i = 0; i < n * k; ++i) {
                    out[t / top_k * n + i / k] += in[3][t] * in[1][e * n * k + i] * in[0][t / top_k * k + i % k];
                  }
                }
                return std::vector<Values>{out};
              },
          .tolerance = 2.0};
}

TEST(GroupedLinear, CasesWithDispatchAndCombine) { check(mixture_case("mixture", 4, 3, 5, 2, kChoices)); }

// Shapes that tensor cores compute: empty experts, one row, all rows in one expert, widths that fill no tile.
TEST(GroupedLinear, CasesOfWholeWords) {
  check(mixture_case("one_token", 3, 8, 16, 1, {1}));
  check(mixture_case("empty_experts", 4, 24, 8, 2, kChoices));
  check(mixture_case("one_expert", 3, 16, 72, 1, Values(37, 1.0)));
  Values spread;
  for (std::int64_t t = 0; t < 90; ++t) spread.push_back(static_cast<double>(t * t % 7));
  check(mixture_case("ragged", 7, 136, 40, 1, spread));
}

// The experts that a case has of all, from the first on.
struct CasePart {
  std::int64_t experts, first, own;
  [[nodiscard]] bool has(double e) const {
    return e >= static_cast<double>(first) && e < static_cast<double>(first + own);
  }
};

// The same by some of the experts: choices of others add nothing.
OpCase part_case(std::string name, const CasePart& part, std::int64_t n, std::int64_t k, std::int64_t top_k,
                 const Values& choices) {
  OpCase whole = mixture_case(std::move(name), part.experts, n, k, top_k, choices);
  whole.inputs[1].type = {DType::kF32, {part.own * n, k}};
  whole.build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
    const ExpertPartAttributes attributes{
        .experts = part.experts, .first = part.first, .own = part.own, .count = "part_rows"};
    const ExpertOrderPart order = expert_order_part(in[2], attributes);
    const Tensor rows = expert_dispatch_part(in[0], order.position, attributes);
    const Tensor y = grouped_linear(rows, in[1], order.start, {.experts = part.own});
    return {expert_combine(y, in[3], order.position)};
  };
  whole.reference = [=](std::span<const Values> in, const Counts&) {
    Values out(in[0].size() / static_cast<std::size_t>(k) * static_cast<std::size_t>(n));
    for (std::int64_t t = 0; t < static_cast<std::int64_t>(choices.size()); ++t) {
      if (!part.has(choices[t])) continue;
      const std::int64_t e = static_cast<std::int64_t>(choices[t]) - part.first;
      for (std::int64_t i = 0; i < n * k; ++i) {
        out[t / top_k * n + i / k] += in[3][t] * in[1][e * n * k + i] * in[0][t / top_k * k + i % k];
      }
    }
    return std::vector<Values>{out};
  };
  return whole;
}

TEST(ExpertPart, Cases) {
  check(part_case("first_experts", {.experts = 4, .first = 0, .own = 2}, 8, 16, 2, kChoices));
  check(part_case("one_expert_of_a_token", {.experts = 4, .first = 3, .own = 1}, 8, 16, 2, kChoices));
  check(part_case("expert_without_rows", {.experts = 4, .first = 1, .own = 1}, 8, 16, 2, kChoices));
  Values spread;
  for (std::int64_t t = 0; t < 90; ++t) spread.push_back(static_cast<double>(t * t % 8));
  check(part_case("ragged_part", {.experts = 8, .first = 4, .own = 4}, 136, 40, 1, spread));
}

TEST(ExpertPart, OrdersItsRowsOnly) {
  check({.name = "expert_order_part",
         .inputs = {{.name = "expert", .type = {DType::kI32, {{5, Count::tokens}, 2}}, .values = kChoices}},
         .below = {{Count::tokens, 3}},
         .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
           const ExpertOrderPart order =
               expert_order_part(in[0], {.experts = 4, .first = 2, .own = 2, .count = "part_rows"});
           return {order.position, order.start, order.rows};
         },
         .reference = [](std::span<const Values>, const Counts& counts) -> std::vector<Values> {
           // Choices of the first three tokens, and of all five.
           if (rows_in_use(counts, Count::tokens, 5) == 3) {
             return {{0, -1, -1, 2, 3, 1, 0, 0, 0, 0}, {0, 2, 4}, {4}};
           }
           return {{0, -1, -1, 4, 5, 1, -1, 2, 3, -1}, {0, 4, 6}, {6}};
         },
         .seeded = {false, false, false}});
}

TEST(GroupedLinear, RefusesWhatDoesNotFit) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {6, 5}});
  const Tensor weight = program.weight("weight", {DType::kF32, {12, 5}});
  const Tensor start = program.input("start", {DType::kI32, {5}});
  EXPECT_NO_THROW((void)grouped_linear(x, weight, start, {.experts = 4}));
  EXPECT_THROW((void)grouped_linear(x, weight, start, {.experts = 3}), Error);
  EXPECT_THROW((void)grouped_linear(weight, x, start, {.experts = 4}), Error);
  EXPECT_THROW((void)expert_dispatch(x, start), Error);
}

}  // namespace
}  // namespace hone::test
