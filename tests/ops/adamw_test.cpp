#include "ops/adamw/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "core/json.h"
#include "core/json_value.h"
#include "core/random.h"
#include "ops/gradient_norm/gradient_norm.h"
#include "ops/guard/guard.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "support/device.h"
#include "support/paths.h"

namespace hone::test {
namespace {

struct Weight {
  std::string name;
  Shape shape;
  double weight_decay = 0;
};

struct StepNumbers {
  double learning_rate = 0;
  std::int64_t step = 1;  // counted from 1
  double max_grad_norm = 0;
};

// A program that updates some weights, with its stores.
class AdamwRun {
 public:
  AdamwRun(const std::vector<Weight>& weights, DType dtype, bool master, AdamwAttributes attributes)
      : attributes_(attributes) {
    register_operations();
    const DType wide = accumulator_of(dtype);
    std::vector<NamedType> weight_types;
    std::vector<NamedType> gradient_types;
    std::vector<NamedType> state_types{{"bad", {DType::kI32, {1}}}};
    for (const Weight& weight : weights) {
      weight_types.push_back({weight.name, {dtype, weight.shape}});
      gradient_types.push_back({weight.name, {wide, weight.shape}});
      for (const char* state : {"m.", "v.", "master."}) {
        state_types.push_back({state + weight.name, {wide, weight.shape}});
      }
    }
    weights_ = TensorStore(test_device(), weight_types);
    gradients_ = TensorStore(test_device(), gradient_types);
    states_ = TensorStore(test_device(), state_types);

    Program program;
    std::vector<Tensor> gradients;
    for (const NamedType& each : gradient_types) gradients.push_back(program.gradient(each.name, each.type));
    AdamwStep step;
    step.norm = gradient_norm(gradients);
    step.hyper = program.input("hyper", {wide, {kAdamwHypers}});
    step.bad = guard(step.norm, program.state("bad", {DType::kI32, {1}}));
    const auto state = [&](const std::string& name, const Weight& weight) {
      return program.state(name + weight.name, {wide, weight.shape});
    };
    for (std::size_t i = 0; i < weights.size(); ++i) {
      attributes.weight_decay = weights[i].weight_decay;
      attributes.stream = static_cast<std::int64_t>(i);
      adamw({program.weight(weights[i].name, weight_types[i].type), gradients[i], state("m.", weights[i]),
             state("v.", weights[i]), master ? state("master.", weights[i]) : Tensor()},
            step, attributes);
    }
    program.output("norm", step.norm);
    executable_ =
        std::make_unique<Executable>(program, std::make_shared<Arena>(test_device()),
                                     Bindings{.weights = &weights_, .gradients = &gradients_, .states = &states_});
  }

  TensorStore& weights() { return weights_; }
  TensorStore& gradients() { return gradients_; }
  TensorStore& states() { return states_; }

  void set_recording(bool recording) { executable_->set_recording(recording); }
  // Runs a step and returns the norm of the gradients.
  float run(const StepNumbers& numbers) {
    std::vector<float> hyper(kAdamwHypers, 0.0f);
    const auto step = static_cast<double>(numbers.step);
    hyper[static_cast<std::size_t>(AdamwHyper::kLearningRate)] = static_cast<float>(numbers.learning_rate);
    hyper[static_cast<std::size_t>(AdamwHyper::kCorrection1)] =
        static_cast<float>(1.0 / (1.0 - std::pow(attributes_.beta1, step)));
    hyper[static_cast<std::size_t>(AdamwHyper::kCorrection2)] =
        static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(attributes_.beta2, step)));
    hyper[static_cast<std::size_t>(AdamwHyper::kMaxGradNorm)] = static_cast<float>(numbers.max_grad_norm);
    executable_->set<float>("hyper", hyper);
    executable_->run();
    std::vector<float> norm(1);
    executable_->get<float>("norm", norm);
    return norm[0];
  }

 private:
  AdamwAttributes attributes_;
  TensorStore weights_, gradients_, states_;
  std::unique_ptr<Executable> executable_;
};

void upload(TensorStore& store, const std::string& name, const std::vector<float>& values) {
  store.upload(name, std::as_bytes(std::span(values)));
}

std::vector<float> floats(const TensorStore& store, const std::string& name) {
  const std::vector<std::byte> bytes = store.download(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 1e-6 * std::max(1.0f, std::abs(expected[i]))) << what << " at " << i;
  }
}

TEST(Adamw, FollowsTorchOverTwentySteps) {
  const Json run = read_json(fixture("ops/adamw.json"));
  std::vector<Weight> weights;
  for (const auto& [name, shape] : run.at("shapes").items()) {
    Weight weight{name, {}, run.at("weight_decay").at(name).get<double>()};
    for (const auto& size : shape) weight.shape.emplace_back(size.get<std::int64_t>());
    weights.push_back(weight);
  }
  AdamwRun optimizer(weights, DType::kF32, false,
                     {.beta1 = run.at("beta1").get<double>(),
                      .beta2 = run.at("beta2").get<double>(),
                      .epsilon = run.at("epsilon").get<double>()});
  for (const Weight& weight : weights) {
    upload(optimizer.weights(), weight.name, run.at("start").at(weight.name).get<std::vector<float>>());
  }
  const double max_grad_norm = run.at("max_grad_norm").get<double>();
  int clipped = 0;
  StepNumbers numbers{.step = 0, .max_grad_norm = max_grad_norm};
  for (const auto& step : run.at("steps")) {
    for (const Weight& weight : weights) {
      upload(optimizer.gradients(), weight.name, step.at("gradients").at(weight.name).get<std::vector<float>>());
    }
    numbers.learning_rate = step.at("learning_rate").get<double>();
    ++numbers.step;
    const float norm = optimizer.run(numbers);
    EXPECT_NEAR(norm, step.at("norm").get<float>(), 1e-6 * norm);
    if (norm > max_grad_norm) ++clipped;
    for (const Weight& weight : weights) {
      expect_near(floats(optimizer.weights(), weight.name),
                  step.at("weights").at(weight.name).get<std::vector<float>>(),
                  weight.name + ", step " + std::to_string(numbers.step));
      for (const float each : floats(optimizer.gradients(), weight.name)) ASSERT_EQ(each, 0.0f);
    }
  }
  EXPECT_EQ(clipped, 8);
  for (const Weight& weight : weights) {
    const auto& state = run.at("state").at(weight.name);
    expect_near(floats(optimizer.states(), "m." + weight.name), state.at("exp_avg").get<std::vector<float>>(), "m");
    expect_near(floats(optimizer.states(), "v." + weight.name), state.at("exp_avg_sq").get<std::vector<float>>(), "v");
  }
}

std::vector<float> normal_floats(std::size_t count, const char* name, float scale) {
  const RandomStream random(3, name);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = scale * random.normal(i);
  return values;
}

// With a master weight, a bf16 weight is after every step the rounded weight of an f32 run.
TEST(Adamw, MasterWeightIsTheWeightInFull) {
  const std::vector<Weight> weights{{"w", {40000}, 0.01}};
  const AdamwAttributes attributes{.weight_decay = 0.01};
  AdamwRun full(weights, DType::kF32, false, attributes);
  AdamwRun half(weights, DType::kBf16, true, attributes);
  AdamwRun rounded(weights, DType::kBf16, false, attributes);
  const std::vector<float> start = normal_floats(40000, "start", 1.0f);
  std::vector<BFloat16> start_rounded;
  for (const float each : start) start_rounded.emplace_back(each);
  upload(full.weights(), "w", start);
  upload(half.states(), "master.w", start);
  half.weights().upload("w", std::as_bytes(std::span(start_rounded)));
  rounded.weights().upload("w", std::as_bytes(std::span(start_rounded)));
  for (std::int64_t step = 1; step <= 3; ++step) {
    const std::vector<float> gradient = normal_floats(40000, "gradient", 0.1f * static_cast<float>(step));
    for (AdamwRun* each : {&full, &half, &rounded}) {
      upload(each->gradients(), "w", gradient);
      each->run({.learning_rate = 1e-4, .step = step});
    }
    const std::vector<float> expected = floats(full.weights(), "w");
    ASSERT_EQ(floats(half.states(), "master.w"), expected);
    const std::vector<std::byte> bytes = half.weights().download("w");
    for (std::size_t i = 0; i < expected.size(); ++i) {
      BFloat16 actual;
      std::memcpy(&actual, bytes.data() + 2 * i, 2);
      ASSERT_EQ(actual.bits, BFloat16(expected[i]).bits) << i;
    }
  }
  EXPECT_NE(half.weights().download("w"), rounded.weights().download("w"));
}

// A recording may update many small weights in one launch; the results are those of a launch for each.
TEST(Adamw, ManyWeightsAreUpdatedAsOneByOne) {
  std::vector<Weight> weights;
  for (std::int64_t i = 0; i < 40; ++i) {
    weights.push_back({"w" + std::to_string(i), {1 + 97 * i * i}, 0.01 * static_cast<double>(i % 3)});
  }
  weights.push_back({"large", {3'000'000}, 0.1});
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    AdamwRun together(weights, dtype, false, {.seed = 5});
    AdamwRun single(weights, dtype, false, {.seed = 5});
    single.set_recording(false);
    for (std::int64_t step = 1; step <= 4; ++step) {
      for (AdamwRun* each : {&together, &single}) {
        for (const Weight& weight : weights) {
          const auto size = static_cast<std::size_t>(weight.shape[0].size);
          upload(each->gradients(), weight.name, normal_floats(size, weight.name.c_str(), static_cast<float>(step)));
        }
        each->run({.learning_rate = 1e-2, .step = step, .max_grad_norm = 1.0});
      }
    }
    for (const Weight& weight : weights) {
      EXPECT_EQ(together.weights().download(weight.name), single.weights().download(weight.name)) << weight.name;
      for (const std::string state : {"m.", "v."}) {
        EXPECT_EQ(together.states().download(state + weight.name), single.states().download(state + weight.name));
      }
    }
  }
}

// After a norm that is not finite, only gradients change, in that step and for the rest of the run.
TEST(Adamw, StopsAtWhatIsNotFinite) {
  AdamwRun optimizer({{"w", {300}, 0.1}}, DType::kF32, false, {});
  upload(optimizer.weights(), "w", normal_floats(300, "start", 1.0f));
  upload(optimizer.gradients(), "w", normal_floats(300, "gradient", 1.0f));
  optimizer.run({.learning_rate = 0.1, .max_grad_norm = 1.0});
  const std::vector<std::byte> weight = optimizer.weights().download("w");
  const std::vector<std::byte> m = optimizer.states().download("m.w");
  const std::vector<std::byte> v = optimizer.states().download("v.w");
  const auto bad = [&] { return static_cast<int>(optimizer.states().download("bad")[0]); };
  EXPECT_EQ(bad(), 0);
  std::vector<float> gradient = normal_floats(300, "gradient", 1.0f);
  for (const float value : {NAN, INFINITY, 1.0f}) {
    gradient[7] = value;
    upload(optimizer.gradients(), "w", gradient);
    optimizer.run({.learning_rate = 0.1, .step = 2, .max_grad_norm = 1.0});
    EXPECT_EQ(bad(), 1);
    EXPECT_EQ(optimizer.weights().download("w"), weight);
    EXPECT_EQ(optimizer.states().download("m.w"), m);
    EXPECT_EQ(optimizer.states().download("v.w"), v);
    EXPECT_EQ(floats(optimizer.gradients(), "w"), std::vector<float>(300, 0.0f));
  }
}

TEST(Adamw, NamesWhatDoesNotFit) {
  register_operations();
  Program program;
  const Type type{DType::kF32, {4}};
  const Tensor one = program.input("norm", {DType::kF32, {1}});
  const AdamwStep step{one, program.input("hyper", {DType::kF32, {kAdamwHypers}}),
                       program.state("bad", {DType::kI32, {1}})};
  const AdamwTensors tensors{program.weight("w", type), program.gradient("w", type), program.state("m", type),
                             program.state("v", {DType::kF32, {5}}), Tensor()};
  try {
    (void)adamw(tensors, step, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("v is f32[5]; expected f32[4]"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hone::test
