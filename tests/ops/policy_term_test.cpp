#include "ops/policy_term/policy_term.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "core/json.h"
#include "core/json_value.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "passes/gradient.h"
#include "program/executable.h"
#include "support/device.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using Columns = std::map<std::string, Values>;

// Computes term, kl, clipped and dlogp from logp, old_logp and ref_logp (if present), advantages and dterm.
template <class T>
Columns run(const Columns& inputs, const PolicyTermAttributes& attributes) {
  register_operations();
  Program program;
  const Type type{DTypeOf<T>::value, {{static_cast<std::int64_t>(inputs.at("logp").size()), Count::tokens}}};
  const auto input = [&](const char* name) { return inputs.contains(name) ? program.input(name, type) : Tensor(); };
  const Tensor logp = input("logp");
  const PolicyTerm result = policy_term(logp, input("old_logp"), input("ref_logp"), input("advantages"), attributes);
  program.output("term", result.term);
  program.output("kl", result.kl);
  program.output("clipped", result.clipped);
  const GradientSeed seeds[] = {{result.term, input("dterm")}};
  program.output("dlogp", append_gradients(program, seeds, {&logp, 1})[0]);
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  for (const auto& [name, values] : inputs) {
    executable.set<T>(name, std::vector<T>(values.begin(), values.end()));
  }
  executable.run();
  Columns outputs;
  for (const char* name : {"term", "kl", "clipped", "dlogp"}) {
    std::vector<T> values(inputs.at("logp").size());
    executable.get<T>(name, values);
    outputs[name] = Values(values.begin(), values.end());
  }
  return outputs;
}

TEST(PolicyTerm, FollowsTorch) {
  const Json file = read_json(fixture("ops/policy_term.json"));
  for (const auto& [name, expected] : file.at("cases").items()) {
    const auto& options = expected.at("options");
    Columns inputs;
    for (const auto& [column, values] : file.at("inputs").items()) inputs[column] = values.get<Values>();
    if (options.contains("once")) inputs.erase("old_logp");
    const PolicyTermAttributes attributes{.kind = options.at("kind").get<std::string>(),
                                          .epsilon = options.at("epsilon").get<double>(),
                                          .epsilon_high = options.at("epsilon_high").get<double>(),
                                          .delta = options.at("delta").get<double>(),
                                          .beta = options.at("beta").get<double>()};
    const auto compare = [&, &name = name, &expected = expected](const Columns& actual, double tolerance) {
      for (const auto& [column, values] : actual) {
        const auto wanted = expected.at(column).get<Values>();
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          ASSERT_NEAR(values[i], wanted[i], tolerance * std::max(1.0, std::abs(wanted[i])))
              << name << ": " << column << " at " << i;
        }
      }
    };
    compare(run<double>(inputs, attributes), 1e-13);
    compare(run<float>(inputs, attributes), 1e-6);
  }
}

TEST(PolicyTerm, Cases) {
  const std::int64_t rows = 60;
  const Type type{DType::kF32, {{rows, Count::tokens}}};
  const auto fixed = [&](const char* name) {
    return CaseInput{.name = name, .type = type, .scale = 0.3, .differentiable = false, .keeps_dtype = true};
  };
  check({
      .name = "policy_term",
      .inputs = {{.name = "logp", .type = type, .scale = 0.3, .keeps_dtype = true},
                 fixed("old_logp"),
                 fixed("ref_logp"),
                 fixed("advantages")},
      .below = {{Count::tokens, 35}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        const PolicyTerm result =
            policy_term(in[0], in[1], in[2], in[3], {.epsilon_high = 0.3, .delta = 1.6, .beta = 0.1});
        return {result.term, result.kl, result.clipped};
      },
      .reference =
          [=](std::span<const Values> in, const Counts& counts) {
            std::vector<Values> outputs(3, Values(static_cast<std::size_t>(rows)));
            const std::int64_t used = rows_in_use(counts, Count::tokens, rows);
            for (std::int64_t i = 0; i < used; ++i) {
              const double r = std::exp(in[0][i] - in[1][i]);
              const double d = in[2][i] - in[0][i];
              const double advantage = in[3][i];
              outputs[1][i] = std::exp(d) - d - 1;
              outputs[0][i] =
                  -std::min(std::min(r, 1.6) * advantage, std::clamp(r, 0.8, 1.3) * advantage) + 0.1 * outputs[1][i];
              outputs[2][i] = advantage > 0 && r > 1.3 ? 1 : advantage < 0 && r < 0.8 ? -1 : 0;
            }
            return outputs;
          },
      .seeded = {true, false, false},
      .tolerance = 2.0,
  });
}

// A NaN does not matter in a token whose output gradient is 0, and propagates in every other token.
TEST(PolicyTerm, NaNIsNotHidden) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Columns inputs{{"logp", {nan, nan, -1.0, -1.0}},
                       {"old_logp", {-1.0, -1.0, nan, -1.0}},
                       {"advantages", {1.0, 1.0, 1.0, -1.0}},
                       {"dterm", {0.0, 1.0, 1.0, 1.0}}};
  const Columns outputs = run<float>(inputs, {});
  EXPECT_EQ(outputs.at("dlogp")[0], 0.0);
  EXPECT_TRUE(std::isnan(outputs.at("term")[1]));
  EXPECT_TRUE(std::isnan(outputs.at("dlogp")[1]));
  EXPECT_TRUE(std::isnan(outputs.at("dlogp")[2]));
  EXPECT_EQ(outputs.at("dlogp")[3], 1.0);
}

TEST(PolicyTerm, NamesWhatDoesNotFit) {
  register_operations();
  Program program;
  const Tensor logp = program.input("logp", {DType::kF32, {4}});
  const Tensor advantages = program.input("advantages", {DType::kF32, {4}});
  EXPECT_THROW((void)policy_term(logp, {}, {}, advantages, {.kind = "gspo"}), Error);
  EXPECT_THROW((void)policy_term(logp, {}, {}, advantages, {.beta = 0.1}), Error);
  EXPECT_THROW((void)policy_term(logp, {}, {}, advantages, {.kind = "cispo", .delta = 2.0}), Error);
  EXPECT_THROW((void)policy_term(logp, {}, {}, program.input("short", {DType::kF32, {3}}), {}), Error);
}

}  // namespace
}  // namespace hone::test
