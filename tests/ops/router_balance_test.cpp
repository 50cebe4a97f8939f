// The load of experts, the losses that balance it, and the update of their biases.
#include "ops/router_balance/router_balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "ops/expert_bias/expert_bias.h"
#include "ops/expert_load/expert_load.h"
#include "ops/fill/fill.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "ops/router/router.h"
#include "ops/update_run.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

// Choices of `rows` tokens, top_k different experts each.
Values some_choices(std::int64_t rows, std::int64_t top_k, std::int64_t experts) {
  Values chosen;
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t j = 0; j < top_k; ++j) chosen.push_back(static_cast<double>((t * t + 3 * j + t / 5) % experts));
  }
  return chosen;
}

TEST(ExpertLoad, AddsTheChoicesOfEachExpert) {
  const std::int64_t rows = 70;
  const Values choices = some_choices(rows, 2, 5);
  check({.name = "expert_load",
         .inputs = {{.name = "expert", .type = {DType::kI32, {{rows, Count::tokens}, 2}}, .values = choices}},
         .below = {{Count::tokens, 31}},
         .build = [](Program& program, std::span<const Tensor> in) -> std::vector<Tensor> {
           const Tensor once = expert_load(in[0], fill(program, {DType::kF32, {5}}, 3.0));
           return {expert_load(in[0], once)};
         },
         .reference =
             [=](std::span<const Values>, const Counts& counts) {
               Values load(5, 3.0);
               const std::int64_t used = 2 * rows_in_use(counts, Count::tokens, rows);
               for (std::int64_t i = 0; i < used; ++i) load[static_cast<std::size_t>(choices[i])] += 2;
               return std::vector<Values>{load};
             },
         .seeded = {false}});
}

struct BalanceSizes {
  std::int64_t rows, experts, top_k;
  Values cu_seqlens;  // empty: one segment
  bool sigmoid = false;
  std::int64_t layers = 1;
  double factor = 1;
  bool is_one_segment = false;  // all documents together
};

Values probabilities(const double* logits, std::int64_t experts, bool sigmoid) {
  Values p(experts);
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    p[e] = sigmoid ? 1 / (1 + std::exp(-logits[e])) : std::exp(logits[e]);
    sum += p[e];
  }
  for (double& each : p) each /= sum;
  return p;
}

// The sums of each segment, and the loss of each token.
std::vector<Values> balance_by_definition(std::span<const Values> in, const BalanceSizes& s, std::int64_t used) {
  const Values bounds = s.cu_seqlens.empty() || s.is_one_segment ? Values{0, static_cast<double>(used)} : s.cu_seqlens;
  Values sums((bounds.size() - 1) * 2 * s.experts);
  Values term(s.rows);
  for (std::size_t d = 0; d + 1 < bounds.size(); ++d) {
    double* choices = sums.data() + d * 2 * s.experts;
    const auto begin = static_cast<std::int64_t>(bounds[d]);
    const auto end = static_cast<std::int64_t>(bounds[d + 1]);
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t j = 0; j < s.top_k; ++j) choices[static_cast<std::size_t>(in[1][t * s.top_k + j])] += 1;
      const Values p = probabilities(in[0].data() + t * s.experts, s.experts, s.sigmoid);
      for (std::int64_t e = 0; e < s.experts; ++e) choices[s.experts + e] += p[e];
    }
    double sum = 0;
    for (std::int64_t e = 0; e < s.experts; ++e) sum += choices[e] * choices[s.experts + e];
    const double all = static_cast<double>(s.layers * (end - begin));
    for (std::int64_t t = begin; t < end; ++t) term[t] = s.factor * static_cast<double>(s.experts) * sum / (all * all);
  }
  return {sums, term};
}

OpCase balance_case(const BalanceSizes& s) {
  const Dim tokens(s.rows, Count::tokens);
  OpCase result{
      .name = text_of("router_balance_", s.rows, "x", s.experts, s.sigmoid ? "_sigmoid" : ""),
      .inputs = {{.name = "logits", .type = {DType::kF32, {tokens, s.experts}}, .keeps_dtype = true},
                 {.name = "expert",
                  .type = {DType::kI32, {tokens, s.top_k}},
                  .values = some_choices(s.rows, s.top_k, s.experts)},
                 {.name = "tokens", .type = {DType::kI32, {tokens}}, .values = Values(s.rows, 1.0)}},
      .below = {{Count::tokens,
                 s.cu_seqlens.empty() ? s.rows / 2 + 1 : static_cast<std::int64_t>(s.cu_seqlens.back())}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        const Tensor bounds = s.cu_seqlens.empty() ? Tensor() : in[3];
        const Tensor sums = router_sums(in[0], in[1], s.is_one_segment ? Tensor() : bounds, {.sigmoid = s.sigmoid});
        return {sums, router_balance(sums, in[2], bounds, {.layers = s.layers, .factor = s.factor})};
      },
      .reference =
          [=](std::span<const Values> in, const Counts& counts) {
            return balance_by_definition(in, s, rows_in_use(counts, Count::tokens, s.rows));
          },
  };
  if (!s.cu_seqlens.empty()) {
    result.inputs.push_back({.name = "cu_seqlens",
                             .type = {DType::kI32, {static_cast<std::int64_t>(s.cu_seqlens.size())}},
                             .values = s.cu_seqlens});
  }
  return result;
}

TEST(RouterBalance, Cases) {
  check(balance_case({.rows = 9, .experts = 6, .top_k = 2, .cu_seqlens = {}, .sigmoid = false, .layers = 3}));
  check(balance_case({.rows = 150, .experts = 8, .top_k = 3, .cu_seqlens = {}, .sigmoid = true}));
  // Documents of 70, 0, 1 and 65 tokens, an absent document, and two rows outside all documents.
  check(balance_case({.rows = 138,
                      .experts = 40,
                      .top_k = 3,
                      .cu_seqlens = {0, 70, 70, 71, 136, 136},
                      .sigmoid = true,
                      .factor = 1.0 / 3}));
  check(balance_case(
      {.rows = 85, .experts = 6, .top_k = 2, .cu_seqlens = {0, 30, 31, 85, 85}, .layers = 2, .is_one_segment = true}));
  check(balance_case({.rows = 20, .experts = 1, .top_k = 1, .cu_seqlens = {0, 9, 20}, .sigmoid = false}));
}

// Equal load and equal probabilities give factor x top_k; one expert that has everything gives experts times as much.
TEST(RouterBalance, IsSmallestWhereTheLoadIsEqual) {
  register_operations();
  const auto loss_of = [](const std::vector<float>& logits, const std::vector<std::int32_t>& expert) {
    Program program;
    const Tensor tokens = program.input("tokens", {DType::kI32, {4}});
    const Tensor sums = router_sums(program.input("logits", {DType::kF32, {4, 4}}),
                                    program.input("expert", {DType::kI32, {4, 1}}), {}, {});
    program.output("term", router_balance(sums, tokens, {}, {}));
    Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
    executable.set<float>("logits", logits);
    executable.set<std::int32_t>("expert", expert);
    executable.set<std::int32_t>("tokens", std::vector<std::int32_t>(4, 0));
    executable.run();
    std::vector<float> term(4);
    executable.get<float>("term", term);
    return term[0];
  };
  EXPECT_FLOAT_EQ(loss_of(std::vector<float>(16, 0.5f), {0, 1, 2, 3}), 1.0f);
  std::vector<float> one(16, -100.0f);
  for (std::size_t t = 0; t < 4; ++t) one[4 * t] = 100.0f;
  EXPECT_FLOAT_EQ(loss_of(one, {0, 0, 0, 0}), 4.0f);
}

TEST(RouterBalance, RefusesWhatDoesNotFit) {
  register_operations();
  Program program;
  const Tensor logits = program.input("logits", {DType::kF32, {4, 6}});
  const Tensor expert = program.input("expert", {DType::kI32, {4, 2}});
  const Tensor bounds = program.input("bounds", {DType::kI32, {3}});
  const Tensor sums = router_sums(logits, expert, bounds, {});
  EXPECT_EQ(sums.type(), (Type{DType::kF32, {2, 12}}));
  EXPECT_THROW((void)router_sums(logits, bounds, {}, {}), Error);
  EXPECT_THROW((void)router_sums(expert, expert, {}, {}), Error);
  EXPECT_THROW((void)router_balance(sums, expert, bounds, {}), Error);
  const Tensor tokens = program.input("tokens", {DType::kI32, {4}});
  EXPECT_THROW((void)router_balance(sums, tokens, {}, {}), Error);
  EXPECT_THROW((void)router_balance(sums, tokens, bounds, {.layers = 0}), Error);
  EXPECT_THROW((void)expert_load(logits, tokens), Error);
  EXPECT_THROW((void)expert_bias({tokens, tokens}, tokens, {}), Error);
}

UpdateRun bias_run(double speed) {
  return {{.weight = {DType::kF32, {4}}}, [=](const UpdateRun::Tensors& t, const AdamwStep& step) {
            expert_bias({t.weight, t.gradient}, step.bad, {.speed = speed});
          }};
}

TEST(ExpertBias, MovesByTheSignOfWhatTheLoadLacks) {
  UpdateRun run = bias_run(0.25);
  run.set_weight({1, 1, 1, 1});
  run.run({5, 10, 20, 5}, 1e-3, 0, 1);  // mean 10
  EXPECT_EQ(run.weight(), (std::vector<float>{1.25, 1, 0.75, 1.25}));
  EXPECT_EQ(run.gradient(), std::vector<float>(4, 0.0f));
  run.run({0, 0, 0, 0}, 1e-3, 0, 2);  // no tokens
  EXPECT_EQ(run.weight(), (std::vector<float>{1.25, 1, 0.75, 1.25}));
  // Means that are no whole numbers are compared exactly: 16,777,213 / 4 is between the loads.
  run.run({4194303, 4194303, 4194303, 4194304}, 1e-3, 0, 3);
  EXPECT_EQ(run.weight(), (std::vector<float>{1.5, 1.25, 1, 1}));
}

TEST(ExpertBias, StaysWhereAStepIsSkipped) {
  UpdateRun run = bias_run(0.25);
  run.set_weight({1, 2, 3, 4});
  run.run({1, 2, std::numeric_limits<float>::infinity(), 3}, 1e-3, 0, 1);
  EXPECT_EQ(run.weight(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(run.gradient(), std::vector<float>(4, 0.0f));
}

// A trainable bias accumulates the load of the experts that its router chooses.
TEST(Router, ATrainableBiasAccumulatesTheLoad) {
  const std::int64_t rows = 9;
  const std::int64_t experts = 5;
  register_operations();
  Program program;
  const Tensor logits = program.input("logits", {DType::kF32, {{rows, Count::tokens}, experts}});
  const Tensor bias = program.weight("bias", {DType::kF32, {experts}}, true, true);
  const Routing routing = router(logits, bias, {.top_k = 2, .sigmoid = true});
  program.output("expert", routing.expert);
  const GradientSeed seed{routing.weight, fill(program, routing.weight.type(), 1.0)};
  (void)append_gradients(program, {&seed, 1});
  const NamedType type{"bias", {DType::kF32, {experts}}};
  TensorStore weights(test_device(), {&type, 1});
  TensorStore gradients(test_device(), {&type, 1});
  weights.fill_zero();
  gradients.fill_zero();
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()),
                        {.weights = &weights, .gradients = &gradients});
  std::vector<float> values(rows * experts);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::sin(7.0 * static_cast<double>(i)));
  std::vector<float> expected(experts);
  for (const std::int64_t used : {9, 4}) {
    executable.set<float>("logits", values);
    executable.set_count(Count::tokens, used);
    executable.run();
    std::vector<std::int32_t> expert(rows * 2);
    executable.get<std::int32_t>("expert", expert);
    for (std::int64_t i = 0; i < 2 * used; ++i) expected[static_cast<std::size_t>(expert[i])] += 1;
    std::vector<float> sums(experts);
    const std::vector<std::byte> bytes = gradients.download("bias");
    std::memcpy(sums.data(), bytes.data(), bytes.size());
    EXPECT_EQ(sums, expected);
  }
}

}  // namespace
}  // namespace hone::test
