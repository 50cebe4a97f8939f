#include "train/optimizer.h"

#include <cmath>
#include <string>

#include "core/error.h"
#include "ops/gradient_norm/gradient_norm.h"
#include "ops/guard/guard.h"

namespace hone {
namespace {

constexpr const char* kBad = "nonfinite";

std::string moment_name(const std::string& weight, std::string_view which) { return weight + "." + std::string(which); }

Type as_f32(Type type) {
  type.dtype = DType::f32;
  return type;
}

}  // namespace

std::vector<NamedType> Optimizer::gradient_types(const Model& model, DType dtype) {
  std::vector<NamedType> types = weight_types(model, dtype);
  for (NamedType& tensor : types) tensor.type.dtype = DType::f32;
  return types;
}

std::vector<NamedType> Optimizer::state_types(const Model& model, DType dtype) {
  std::vector<NamedType> types;
  for (const NamedType& weight : weight_types(model, dtype)) {
    types.push_back({moment_name(weight.name, "exp_avg"), as_f32(weight.type)});
    types.push_back({moment_name(weight.name, "exp_avg_sq"), as_f32(weight.type)});
    if (dtype != DType::f32) types.push_back({moment_name(weight.name, "master"), as_f32(weight.type)});
  }
  types.push_back({kBad, {DType::i32, {1}}});
  return types;
}

Program Optimizer::trace_update(const Model& model, DType dtype, const AdamwAttributes& attributes) {
  Program program;
  program.set_phase(Phase::update);
  const Tensor hyper = program.input("hyper", {DType::f32, {kAdamwHypers}});
  std::vector<AdamwTensors> tensors;
  std::vector<Tensor> gradients;
  for (const NamedType& weight : weight_types(model, dtype)) {
    AdamwTensors each;
    each.weight = program.weight(weight.name, weight.type);
    each.gradient = program.gradient(weight.name, as_f32(weight.type));
    each.m = program.state(moment_name(weight.name, "exp_avg"), as_f32(weight.type));
    each.v = program.state(moment_name(weight.name, "exp_avg_sq"), as_f32(weight.type));
    if (dtype != DType::f32) each.master = program.state(moment_name(weight.name, "master"), as_f32(weight.type));
    gradients.push_back(each.gradient);
    tensors.push_back(each);
  }
  const Tensor norm = gradient_norm(gradients);
  const Tensor bad = guard(norm, program.state(kBad, {DType::i32, {1}}));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const WeightSpec& spec = model.weights()[i];
    const Scope scope(program, spec.name);
    AdamwAttributes own = attributes;
    if (!spec.decays) own.weight_decay = 0;
    adamw(tensors[i], {.norm = norm, .hyper = hyper, .bad = bad}, own);
  }
  program.output("grad_norm", norm);
  program.output("bad", bad);
  return program;
}

Optimizer::Optimizer(const Model& model, TensorStore& weights, std::shared_ptr<Arena> arena,
                     const AdamwAttributes& attributes)
    : attributes_(attributes) {
  const DType dtype = weights.tensors().front().type.dtype;
  Device& device = arena->device();
  gradients_ = TensorStore(device, gradient_types(model, dtype));
  states_ = TensorStore(device, state_types(model, dtype));
  if (dtype != DType::f32) {
    for (const NamedType& weight : weights.tensors()) {
      const std::vector<std::byte> narrow = weights.download(weight.name);
      std::vector<float> wide(narrow.size() / sizeof(BFloat16));
      const auto* values = reinterpret_cast<const BFloat16*>(narrow.data());
      for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<float>(values[i]);
      states_.upload(moment_name(weight.name, "master"), std::as_bytes(std::span(wide)));
    }
  }
  executable_.emplace(trace_update(model, dtype, attributes), std::move(arena),
                      Bindings{.weights = &weights, .gradients = &gradients_, .states = &states_});
}

UpdateResult Optimizer::update(double learning_rate, double max_grad_norm) {
  const auto t = static_cast<double>(steps_ + 1);
  std::vector<float> hyper(kAdamwHypers, 0.0f);
  const auto set = [&](AdamwHyper which, double value) {
    hyper[static_cast<std::size_t>(which)] = static_cast<float>(value);
  };
  set(AdamwHyper::learning_rate, learning_rate);
  set(AdamwHyper::correction1, 1.0 / (1.0 - std::pow(attributes_.beta1, t)));
  set(AdamwHyper::correction2, 1.0 / std::sqrt(1.0 - std::pow(attributes_.beta2, t)));
  set(AdamwHyper::max_grad_norm, max_grad_norm);
  executable_->set<float>("hyper", hyper);
  executable_->run();
  float norm = 0;
  std::int32_t bad = 0;
  executable_->get<float>("grad_norm", {&norm, 1});
  executable_->get<std::int32_t>("bad", {&bad, 1});
  if (bad == 0) ++steps_;
  return {norm, bad == 0};
}

void Optimizer::clear_guard() {
  const std::int32_t clear = 0;
  states_.upload(kBad, std::as_bytes(std::span(&clear, 1)));
}

}  // namespace hone
