// Runs the update of an optimizer on one weight, with its stores.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/adamw/adamw.h"
#include "ops/gradient_norm/gradient_norm.h"
#include "ops/guard/guard.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "support/device.h"

namespace hone::test {

struct UpdateTypes {
  Type weight;
  DType gradient = DType::kF32;
  bool momentum = false;
  bool master = false;
};

class UpdateRun {
 public:
  struct Tensors {
    Tensor weight, gradient, momentum, master;
  };

  // `build(tensors, step)` appends the update.
  template <class Build>
  UpdateRun(const UpdateTypes& types, const Build& build) : types_(types) {
    register_operations();
    const Type wide{DType::kF32, types.weight.shape};
    const NamedType weight{"w", types.weight};
    const NamedType gradient{"w", {types.gradient, types.weight.shape}};
    std::vector<NamedType> states{{"bad", {DType::kI32, {1}}}, {"momentum", wide}, {"master", wide}};
    weights_ = TensorStore(test_device(), {&weight, 1});
    gradients_ = TensorStore(test_device(), {&gradient, 1});
    Program program;
    const Tensor all = program.gradient("w", gradient.type);
    const Tensor norm = gradient_norm({&all, 1});
    const AdamwStep step{.norm = norm,
                         .hyper = program.input("hyper", {DType::kF32, {kAdamwHypers}}),
                         .bad = guard(norm, program.state("bad", {DType::kI32, {1}}))};
    build(Tensors{.weight = program.weight("w", types.weight),
                  .gradient = all,
                  .momentum = types.momentum ? program.state("momentum", wide) : Tensor(),
                  .master = types.master ? program.state("master", wide) : Tensor()},
          step);
    for (const Value& value : program.values()) {  // those that `build` declares
      const bool is_new = std::ranges::find(states, value.name, &NamedType::name) == states.end();
      if (value.role == Role::kState && is_new) states.push_back({value.name, value.type});
    }
    states_ = TensorStore(test_device(), states);
    executable_ =
        std::make_unique<Executable>(program, std::make_shared<Arena>(test_device()),
                                     Bindings{.weights = &weights_, .gradients = &gradients_, .states = &states_});
  }

  void set_weight(const std::vector<float>& values) {
    upload(weights_, "w", values);
    if (types_.master) upload(states_, "master", values);
  }
  void run(const std::vector<float>& gradient, double learning_rate, double max_grad_norm, std::int64_t step) {
    upload(gradients_, "w", gradient);
    std::vector<float> hyper(kAdamwHypers, 0.0f);
    hyper[static_cast<std::size_t>(AdamwHyper::kLearningRate)] = static_cast<float>(learning_rate);
    hyper[static_cast<std::size_t>(AdamwHyper::kMaxGradNorm)] = static_cast<float>(max_grad_norm);
    hyper[static_cast<std::size_t>(AdamwHyper::kStep)] = static_cast<float>(step);
    executable_->set<float>("hyper", hyper);
    executable_->run();
  }
  [[nodiscard]] std::vector<float> weight() const { return floats(weights_, "w"); }
  [[nodiscard]] std::vector<float> master() const { return floats(states_, "master"); }
  [[nodiscard]] std::vector<float> momentum() const { return floats(states_, "momentum"); }
  [[nodiscard]] std::vector<float> gradient() const { return floats(gradients_, "w"); }

 private:
  static void upload(TensorStore& store, const char* name, const std::vector<float>& values) {
    if (store.type(name).dtype == DType::kF32) return store.upload(name, std::as_bytes(std::span(values)));
    const std::vector<BFloat16> narrow(values.begin(), values.end());
    store.upload(name, std::as_bytes(std::span(narrow)));
  }
  static std::vector<float> floats(const TensorStore& store, const char* name) {
    const std::vector<std::byte> bytes = store.download(name);
    std::vector<float> values(static_cast<std::size_t>(store.type(name).elements()));
    if (store.type(name).dtype == DType::kF32) {
      std::memcpy(values.data(), bytes.data(), bytes.size());
    } else {
      const auto* narrow = reinterpret_cast<const BFloat16*>(bytes.data());
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(narrow[i]);
    }
    return values;
  }

  UpdateTypes types_;
  TensorStore weights_, gradients_, states_;
  std::unique_ptr<Executable> executable_;
};

}  // namespace hone::test
