#include "ops/muon/muon.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "ops/cast/cast.h"
#include "ops/fill/fill.h"
#include "ops/gradient_norm/gradient_norm.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "program/kernel.h"

namespace hone {
namespace {

void expect_type(InputTypes inputs, std::size_t index, std::string_view op, const char* what, const Type& wanted) {
  const Type& seen = required(inputs, index, op);
  expect(seen == wanted, op, text_of(what, " is ", to_text(seen), "; expected ", to_text(wanted)));
}

void expect_matrix(const Type& type, std::int64_t first, std::int64_t rows, std::string_view op) {
  expect(is_floating(type.dtype) && type.shape.size() == 2, op,
         text_of(to_text(type), " is not a matrix of a floating type"));
  expect(first >= 0 && rows > 0 && rows <= type.rows() && first <= type.rows() - rows, op,
         text_of("rows ", first, " to ", first + rows, " are not a range of rows of ", to_text(type)));
}

Cost elementwise(Cost cost, double flops, std::int64_t elements) {
  cost.flops = flops * static_cast<double>(elements);
  return cost;
}

// (gradient, momentum, norm, hyper, bad) -> (gradient, momentum, direction), the first two in place. `direction` is the
// matrix that Newton-Schulz iterations then make orthogonal.
class MuonMomentum final : public Op {
 public:
  std::string_view name() const override { return "muon_momentum"; }
  OpCategory category() const override { return OpCategory::kOptimizer; }
  Attributes default_attributes() const override { return MuonMomentumAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto& own = attributes.as<MuonMomentumAttributes>();
    const Type& gradient = required(inputs, MuonMomentumIn::gradient, name());
    expect_matrix(gradient, own.first_row, own.rows, name());
    const DType wide = accumulator_of(gradient.dtype);
    expect_type(inputs, MuonMomentumIn::momentum, name(), "the momentum", {wide, gradient.shape});
    expect_type(inputs, MuonMomentumIn::norm, name(), "the norm", {wide, {1}});
    expect_type(inputs, MuonMomentumIn::hyper, name(), "hyper", {wide, {kAdamwHypers}});
    expect_type(inputs, MuonMomentumIn::bad, name(), "bad", {DType::kI32, {1}});
    return {gradient, required(inputs, MuonMomentumIn::momentum, name()), Type{wide, {own.rows, gradient.shape[1]}}};
  }
  Cost cost(InputTypes, std::span<const Type> outputs, const Attributes&) const override {
    const std::int64_t elements = outputs[MuonMomentumOut::direction].elements();
    Cost cost;
    cost.bytes_read = static_cast<double>(elements) *
                      static_cast<double>(size_of(outputs[MuonMomentumOut::gradient].dtype) + sizeof(float));
    cost.bytes_written = cost.bytes_read + static_cast<double>(outputs[MuonMomentumOut::direction].bytes());
    return elementwise(cost, 7.0, elements);
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    return output < MuonMomentumOut::direction ? std::optional(output) : std::nullopt;
  }
};

// (x, norm) -> x / max(norm, epsilon).
class MuonUnit final : public Op {
 public:
  std::string_view name() const override { return "muon_unit"; }
  OpCategory category() const override { return OpCategory::kOptimizer; }
  Attributes default_attributes() const override { return MuonUnitAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, MuonUnitIn::x, name());
    const DType dtype = dtype_from_name(attributes.as<MuonUnitAttributes>().dtype);
    expect(accumulator_of(x.dtype) == x.dtype && is_floating(dtype) && accumulator_of(dtype) == x.dtype, name(),
           text_of("cannot convert from ", to_text(x), " to ", name_of(dtype)));
    expect_type(inputs, MuonUnitIn::norm, name(), "the norm", {x.dtype, {1}});
    return {Type{dtype, x.shape}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return elementwise(Op::cost(inputs, outputs, attributes), 1.0, outputs[0].elements());
  }
};

// (x, y) -> a x + b y, rounded once to x's dtype. y has x's dtype or its accumulator type.
class MuonCombine final : public Op {
 public:
  std::string_view name() const override { return "muon_combine"; }
  OpCategory category() const override { return OpCategory::kOptimizer; }
  Attributes default_attributes() const override { return MuonCombineAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, MuonCombineIn::x, name());
    const Type& y = required(inputs, MuonCombineIn::y, name());
    expect(is_floating(x.dtype) && x.shape == y.shape && (y.dtype == x.dtype || y.dtype == accumulator_of(x.dtype)),
           name(), text_of(to_text(x), " cannot be combined with ", to_text(y)));
    return {x};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return elementwise(Op::cost(inputs, outputs, attributes), 3.0, outputs[0].elements());
  }
};

// (weight, move, master or none, hyper, bad) -> (weight, master or nothing), in place.
class MuonApply final : public Op {
 public:
  std::string_view name() const override { return "muon_apply"; }
  OpCategory category() const override { return OpCategory::kOptimizer; }
  Attributes default_attributes() const override { return MuonApplyAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& weight = required(inputs, MuonApplyIn::weight, name());
    const Type& move = required(inputs, MuonApplyIn::move, name());
    expect_matrix(weight, attributes.as<MuonApplyAttributes>().first_row, move.rows(), name());
    const DType wide = accumulator_of(weight.dtype);
    expect(move.dtype == weight.dtype && move.shape.size() == 2 && move.shape[1] == weight.shape[1], name(),
           text_of("the weight is ", to_text(weight), ", but its move is ", to_text(move)));
    std::vector<Type> outputs{weight};
    if (const auto& master = inputs[MuonApplyIn::master]) {
      expect_type(inputs, MuonApplyIn::master, name(), "the master weight", {wide, weight.shape});
      expect(weight.dtype != wide, name(),
             text_of("the weight is ", to_text(weight), "; only a bf16 weight takes a master weight"));
      outputs.push_back(*master);
    }
    expect_type(inputs, MuonApplyIn::hyper, name(), "hyper", {wide, {kAdamwHypers}});
    expect_type(inputs, MuonApplyIn::bad, name(), "bad", {DType::kI32, {1}});
    return outputs;
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes&) const override {
    const Type& move = required(inputs, MuonApplyIn::move, name());
    const std::int64_t elements = move.elements();
    Cost cost;
    for (const Type& output : outputs) cost.bytes_written += static_cast<double>(size_of(output.dtype));
    cost.bytes_written *= static_cast<double>(elements);
    cost.bytes_read = cost.bytes_written + static_cast<double>(move.bytes());
    return elementwise(cost, 4.0, elements);
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    return output == MuonApplyOut::weight ? MuonApplyIn::weight : MuonApplyIn::master;
  }
};

const MuonMomentum kMomentum;
const MuonUnit kUnit;
const MuonCombine kCombine;
const MuonApply kApply;

Tensor combine(Tensor x, double a, Tensor y, double b) {
  return x.program().append1(kCombine, MuonCombineAttributes{.a = a, .b = b}, {x, y});
}

// Returns x^T x in x's dtype.
Tensor gram_of_columns(Tensor x) {
  Program& program = x.program();
  const Type sum{accumulator_of(x.dtype()), {x.dim(1), x.dim(1)}};
  const Tensor gram = transposed_product(x, x, fill(program, sum, 0.0));
  return x.dtype() == sum.dtype ? gram : cast(gram, x.dtype());
}

}  // namespace

double muon_scale(MuonScale scale, std::int64_t rows, std::int64_t columns) {
  const auto m = static_cast<double>(rows);
  const auto n = static_cast<double>(columns);
  return scale == MuonScale::kOriginal ? std::sqrt(std::max(1.0, m / n)) : 0.2 * std::sqrt(std::max(m, n));
}

Tensor newton_schulz(Tensor x, std::int64_t steps) {
  constexpr double kA = 3.4445;
  constexpr double kB = -4.7750;
  constexpr double kC = 2.0315;
  const bool tall = x.dim(0) > x.dim(1);
  for (std::int64_t step = 0; step < steps; ++step) {
    const Tensor gram = tall ? gram_of_columns(x) : linear(x, x);
    // linear() multiplies by a transpose; the Gram matrix is symmetric up to the rounding of the last bit.
    const Tensor change = combine(gram, kB, linear(gram, gram, {}, {.f32_output = true}), kC);
    x = combine(x, kA, tall ? linear(x, change, {}, {.f32_output = true}) : product(change, x), 1.0);
  }
  return x;
}

MuonTensors muon(const MuonTensors& tensors, const AdamwStep& step, const MuonAttributes& attributes) {
  Program& program = tensors.weight.program();
  MuonTensors updated = tensors;
  const std::vector<Tensor> moved =
      program.append(kMomentum,
                     MuonMomentumAttributes{.momentum = attributes.momentum,
                                            .nesterov = attributes.nesterov,
                                            .first_row = attributes.rows.first,
                                            .rows = attributes.rows.count},
                     std::vector<Tensor>{tensors.gradient, tensors.momentum, step.norm, step.hyper, step.bad});
  updated.gradient = moved[0];
  updated.momentum = moved[1];
  const MuonUnitAttributes unit{.dtype = std::string(name_of(tensors.weight.dtype()))};
  const Tensor norm = gradient_norm({&moved[2], 1});
  const Tensor direction = newton_schulz(program.append1(kUnit, unit, {moved[2], norm}), attributes.steps);
  MuonApplyAttributes apply = attributes.apply;
  apply.first_row = attributes.rows.first;
  const std::vector<Tensor> outputs = program.append(
      kApply, apply, std::vector<Tensor>{tensors.weight, direction, tensors.master, step.hyper, step.bad});
  updated.weight = outputs[MuonApplyOut::weight];
  if (tensors.master) updated.master = outputs[MuonApplyOut::master];
  return updated;
}

void register_muon(OpRegistry& registry) {
  registry.add(kMomentum);
  registry.add(kUnit);
  registry.add(kCombine);
  registry.add(kApply);
}

}  // namespace hone
