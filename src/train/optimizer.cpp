#include "train/optimizer.h"

#include <cmath>
#include <string>

#include "backend/host_memory.h"
#include "core/error.h"
#include "ops/gradient_norm/gradient_norm.h"
#include "ops/guard/guard.h"

namespace hone {
namespace {

constexpr const char* kBad = "nonfinite";

std::string state_name(const std::string& weight, std::string_view which) { return weight + "." + std::string(which); }

// A trainable weight and its place among the model's.
struct Trained {
  const WeightSpec& spec;
  NamedType weight;
  std::int64_t index;
};

std::vector<Trained> trained_weights(const Model& model, DType dtype) {
  std::vector<Trained> trained;
  const std::vector<NamedType> types = weight_types(model, dtype);
  for (std::size_t i = 0; i < types.size(); ++i) {
    const WeightSpec& spec = model.weights()[i];
    if (spec.trainable) trained.push_back({spec, types[i], static_cast<std::int64_t>(i)});
  }
  return trained;
}

// All states but the flag, those of paged weights or those of the others.
std::vector<NamedType> named_states(const Model& model, DType dtype, const OptimizerOptions& options, bool paged) {
  std::vector<NamedType> types;
  for (const auto& [spec, weight, index] : trained_weights(model, dtype)) {
    if (paged != (options.paged && weight.type.elements() >= kLeastPaged)) continue;
    for (const NamedType& state : states_of(spec, weight.type, options)) {
      types.push_back({state_name(weight.name, state.name), state.type});
    }
  }
  return types;
}

}  // namespace

std::vector<NamedType> Optimizer::gradient_types(const Model& model, DType dtype, const OptimizerOptions& options) {
  std::vector<NamedType> types;
  for (const auto& [spec, weight, index] : trained_weights(model, dtype)) {
    types.push_back({weight.name, gradient_type(weight.type, options.gradients)});
  }
  return types;
}

std::vector<NamedType> Optimizer::state_types(const Model& model, DType dtype, const OptimizerOptions& options) {
  std::vector<NamedType> types = named_states(model, dtype, options, false);
  types.push_back({kBad, {DType::i32, {1}}});
  return types;
}

std::vector<NamedType> Optimizer::paged_types(const Model& model, DType dtype, const OptimizerOptions& options) {
  return named_states(model, dtype, options, true);
}

Program Optimizer::trace_update(const Model& model, DType dtype, const OptimizerOptions& options) {
  Program program;
  program.set_phase(Phase::update);
  const Tensor hyper = program.input("hyper", {DType::f32, {kAdamwHypers}});
  const std::vector<Trained> trained = trained_weights(model, dtype);
  std::vector<UpdatedWeight> tensors;
  std::vector<Tensor> gradients;
  for (const auto& [spec, weight, index] : trained) {
    UpdatedWeight each;
    each.weight = program.weight(weight.name, weight.type);
    each.gradient = program.gradient(weight.name, gradient_type(weight.type, options.gradients));
    for (const NamedType& state : states_of(spec, weight.type, options)) {
      each.states.push_back(program.state(state_name(weight.name, state.name), state.type));
    }
    gradients.push_back(each.gradient);
    tensors.push_back(each);
  }
  const Tensor norm = gradient_norm(gradients);
  const Tensor bad = guard(norm, program.state(kBad, {DType::i32, {1}}));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Scope scope(program, trained[i].spec.name);
    append_update(trained[i].spec, tensors[i], {.norm = norm, .hyper = hyper, .bad = bad}, options, trained[i].index);
  }
  program.output("grad_norm", norm);
  program.output("bad", bad);
  return program;
}

Optimizer::Optimizer(const Model& model, TensorStore& weights, std::shared_ptr<Arena> arena,
                     const OptimizerOptions& options)
    : attributes_(options.adamw) {
  const DType dtype = weights.tensors().front().type.dtype;
  Device& device = arena->device();
  gradients_ = TensorStore(device, gradient_types(model, dtype, options));
  states_ = TensorStore(device, state_types(model, dtype, options));
  paged_ = TensorStore(host_memory_of(device), paged_types(model, dtype, options));
  if (has_masters(dtype, options)) {
    for (const auto& [spec, weight, index] : trained_weights(model, dtype)) {
      const std::vector<std::byte> narrow = weights.download(weight.name);
      std::vector<float> wide(narrow.size() / sizeof(BFloat16));
      const auto* values = reinterpret_cast<const BFloat16*>(narrow.data());
      for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<float>(values[i]);
      const std::string name = state_name(weight.name, "master");
      (states_.contains(name) ? states_ : paged_).upload(name, std::as_bytes(std::span(wide)));
    }
  }
  executable_ = std::make_unique<Executable>(
      trace_update(model, dtype, options), std::move(arena),
      Bindings{.weights = &weights, .gradients = &gradients_, .states = &states_, .paged_states = &paged_});
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
  set(AdamwHyper::step, t);
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
