#include "train/optimizer.h"

#include <cmath>
#include <string>

#include "backend/host_memory.h"
#include "core/error.h"
#include "ops/adamw_8bit/adamw_8bit.h"
#include "ops/gradient_norm/gradient_norm.h"
#include "ops/guard/guard.h"

namespace hone {
namespace {

constexpr const char* kBad = "nonfinite";

std::string state_name(const std::string& weight, std::string_view which) { return weight + "." + std::string(which); }

Type as_f32(Type type) {
  type.dtype = DType::f32;
  return type;
}

bool has_masters(DType dtype, const OptimizerOptions& options) {
  return dtype != DType::f32 && options.moments == Moments::wide;
}

bool has_codes(const Type& weight, const OptimizerOptions& options) {
  return options.moments == Moments::codes && weight.elements() >= kLeastCoded;
}

// The states of one weight, by what each is of it.
std::vector<NamedType> states_of(const Type& weight, const OptimizerOptions& options) {
  if (has_codes(weight, options)) {
    const Type codes{DType::u8, weight.shape};
    const Type scales{DType::f32, {scales_of(weight.elements())}};
    return {{"exp_avg", codes}, {"exp_avg_sq", codes}, {"exp_avg_scale", scales}, {"exp_avg_sq_scale", scales}};
  }
  const Type moment = options.moments == Moments::as_weights ? weight : as_f32(weight);
  std::vector<NamedType> states{{"exp_avg", moment}, {"exp_avg_sq", moment}};
  if (has_masters(weight.dtype, options)) states.push_back({"master", as_f32(weight)});
  return states;
}

// All states but the flag, those of paged weights or those of the others.
std::vector<NamedType> named_states(const Model& model, DType dtype, const OptimizerOptions& options, bool paged) {
  std::vector<NamedType> types;
  for (const NamedType& weight : weight_types(model, dtype)) {
    if (paged != (options.paged && weight.type.elements() >= kLeastPaged)) continue;
    for (const NamedType& state : states_of(weight.type, options)) {
      types.push_back({state_name(weight.name, state.name), state.type});
    }
  }
  return types;
}

// The tensors of a weight's update.
struct Updated {
  Tensor weight;
  Tensor gradient;
  std::vector<Tensor> states;  // as states_of has them

  void append(const AdamwStep& step, const AdamwAttributes& attributes) const {
    if (states[0].dtype() == DType::u8) {
      adamw_8bit({weight, gradient, states[0], states[1], states[2], states[3]}, step, attributes);
    } else {
      adamw({weight, gradient, states[0], states[1], states.size() > 2 ? states[2] : Tensor()}, step, attributes);
    }
  }
};

}  // namespace

std::vector<NamedType> Optimizer::gradient_types(const Model& model, DType dtype, const OptimizerOptions& options) {
  std::vector<NamedType> types = weight_types(model, dtype);
  for (NamedType& tensor : types) tensor.type = gradient_type(tensor.type, options.gradients);
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
  std::vector<Updated> tensors;
  std::vector<Tensor> gradients;
  for (const NamedType& weight : weight_types(model, dtype)) {
    Updated each;
    each.weight = program.weight(weight.name, weight.type);
    each.gradient = program.gradient(weight.name, gradient_type(weight.type, options.gradients));
    for (const NamedType& state : states_of(weight.type, options)) {
      each.states.push_back(program.state(state_name(weight.name, state.name), state.type));
    }
    gradients.push_back(each.gradient);
    tensors.push_back(each);
  }
  const Tensor norm = gradient_norm(gradients);
  const Tensor bad = guard(norm, program.state(kBad, {DType::i32, {1}}));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const WeightSpec& spec = model.weights()[i];
    const Scope scope(program, spec.name);
    AdamwAttributes own = options.adamw;
    if (!spec.decays) own.weight_decay = 0;
    own.stream = static_cast<std::int64_t>(i);
    tensors[i].append({.norm = norm, .hyper = hyper, .bad = bad}, own);
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
    for (const NamedType& weight : weights.tensors()) {
      const std::vector<std::byte> narrow = weights.download(weight.name);
      std::vector<float> wide(narrow.size() / sizeof(BFloat16));
      const auto* values = reinterpret_cast<const BFloat16*>(narrow.data());
      for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<float>(values[i]);
      const std::string name = state_name(weight.name, "master");
      (states_.contains(name) ? states_ : paged_).upload(name, std::as_bytes(std::span(wide)));
    }
  }
  executable_.emplace(
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
