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
  OpCategory category() const override { return OpCategory::kOptimizer; }
  Attributes default_attributes() const override { return AdamwAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& weight = required(inputs, Adamw8bitIn::weight, name());
    expect(weight.dtype == DType::kF32 || weight.dtype == DType::kBf16, name(),
           text_of("the weight is ", to_text(weight), "; expected f32 or bf16"));
    const auto check = [&](std::size_t index, const char* what, const Type& wanted) {
      const Type& seen = required(inputs, index, name());
      expect(seen == wanted, name(), text_of(what, " is ", to_text(seen), "; expected ", to_text(wanted)));
    };
    const Type& gradient = required(inputs, Adamw8bitIn::gradient, name());
    const std::int64_t count = attributes.as<AdamwAttributes>().count;
    const Shape accumulated = gradient_shape(weight.shape, gradient.shape, count);
    if (gradient != Type{weight.dtype, accumulated})
      check(Adamw8bitIn::gradient, "the gradient", {DType::kF32, accumulated});
    const Type codes{DType::kU8, updated_shape(weight.shape, count)};
    check(Adamw8bitIn::m, "m", codes);
    check(Adamw8bitIn::v, "v", codes);
    const Shape scales{scales_of(codes.elements())};
    check(Adamw8bitIn::m_scale, "the scale of m", {DType::kF32, scales});
    check(Adamw8bitIn::v_scale, "the scale of v", {DType::kF32, scales});
    check(Adamw8bitIn::norm, "the norm", {DType::kF32, {1}});
    check(Adamw8bitIn::hyper, "hyper", {DType::kF32, {kAdamwHypers}});
    check(Adamw8bitIn::bad, "bad", {DType::kI32, {1}});
    return {weight,
            gradient,
            required(inputs, Adamw8bitIn::m, name()),
            required(inputs, Adamw8bitIn::v, name()),
            required(inputs, Adamw8bitIn::m_scale, name()),
            required(inputs, Adamw8bitIn::v_scale, name())};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = update_cost(Op::cost(inputs, outputs, attributes), outputs, attributes.as<AdamwAttributes>().clears);
    cost.flops = 20.0 * static_cast<double>(outputs[Adamw8bitOut::m].elements());
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
  return {outputs[Adamw8bitOut::weight], outputs[Adamw8bitOut::gradient], outputs[Adamw8bitOut::m],
          outputs[Adamw8bitOut::v],      outputs[Adamw8bitOut::m_scale],  outputs[Adamw8bitOut::v_scale]};
}

void register_adamw_8bit(OpRegistry& registry) { registry.add(kAdamw8bit); }

}  // namespace hone
