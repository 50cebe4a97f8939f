#include "ops/adamw_8bit/adamw_8bit.h"

#include <vector>

#include "core/error.h"
#include "ops/registry.h"
#include "program/kernel.h"

namespace hone {
namespace {

// (weight, gradient, m, v, m_scale, v_scale, norm, hyper, bad) -> the first six, in place.
class Adamw8bit final : public Op {
 public:
  std::string_view name() const override { return "adamw_8bit"; }
  OpCategory category() const override { return OpCategory::optimizer; }
  Attributes default_attributes() const override { return AdamwAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& weight = required(inputs, 0, name());
    expect(weight.dtype == DType::f32 || weight.dtype == DType::bf16, name(),
           text_of("the weight is ", to_text(weight), "; wanted f32 or bf16"));
    const auto check = [&](std::size_t index, const char* what, const Type& wanted) {
      const Type& seen = required(inputs, index, name());
      expect(seen == wanted, name(), text_of(what, " is ", to_text(seen), "; wanted ", to_text(wanted)));
    };
    const Type& gradient = required(inputs, 1, name());
    if (gradient != weight) check(1, "the gradient", {DType::f32, weight.shape});
    check(2, "m", {DType::u8, weight.shape});
    check(3, "v", {DType::u8, weight.shape});
    const Shape scales{scales_of(weight.elements())};
    check(4, "the scale of m", {DType::f32, scales});
    check(5, "the scale of v", {DType::f32, scales});
    check(6, "the norm", {DType::f32, {1}});
    check(7, "hyper", {DType::f32, {kAdamwHypers}});
    check(8, "bad", {DType::i32, {1}});
    return {weight,
            gradient,
            required(inputs, 2, name()),
            required(inputs, 3, name()),
            required(inputs, 4, name()),
            required(inputs, 5, name())};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 20.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override { return output; }
};

const Adamw8bit kAdamw8bit;

}  // namespace

Adamw8bitTensors adamw_8bit(const Adamw8bitTensors& tensors, const AdamwStep& step, const AdamwAttributes& attributes) {
  const std::vector<Tensor> inputs{tensors.weight,  tensors.gradient, tensors.m,  tensors.v, tensors.m_scale,
                                   tensors.v_scale, step.norm,        step.hyper, step.bad};
  const std::vector<Tensor> outputs = tensors.weight.program().append(kAdamw8bit, attributes, inputs);
  return {outputs[0], outputs[1], outputs[2], outputs[3], outputs[4], outputs[5]};
}

void register_adamw_8bit(OpRegistry& registry) { registry.add(kAdamw8bit); }

}  // namespace hone
