#include "ops/adamw/adamw.h"

#include <string>
#include <vector>

#include "core/error.h"
#include "ops/registry.h"
#include "program/kernel.h"

namespace hone {
namespace {

// (weight, gradient, m, v, master or none, norm, hyper, bad) -> (weight, gradient, m, v, master or nothing), in place.
class Adamw final : public Op {
 public:
  std::string_view name() const override { return "adamw"; }
  OpCategory category() const override { return OpCategory::kOptimizer; }
  Attributes default_attributes() const override { return AdamwAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& weight = required(inputs, AdamwIn::weight, name());
    expect(is_floating(weight.dtype), name(), text_of("the weight is ", to_text(weight), "; expected a floating type"));
    const DType wide = accumulator_of(weight.dtype);
    const Shape states = updated_shape(weight.shape, attributes.as<AdamwAttributes>().count);
    const auto check = [&](std::size_t index, const char* what, const Shape& shape, DType other = DType::kF64) {
      const Type wanted{wide, shape};
      const Type& seen = required(inputs, index, name());
      expect(seen == wanted || (other == DType::kBf16 && seen == Type{other, shape}), name(),
             text_of(what, " is ", to_text(seen), "; expected ", to_text(wanted)));
    };
    const Type& gradient = required(inputs, AdamwIn::gradient, name());
    check(AdamwIn::gradient, "the gradient",
          gradient_shape(weight.shape, gradient.shape, attributes.as<AdamwAttributes>().count), weight.dtype);
    check(AdamwIn::m, "m", states, weight.dtype);
    check(AdamwIn::v, "v", states, weight.dtype);
    const Type& m = required(inputs, AdamwIn::m, name());
    const Type& v = required(inputs, AdamwIn::v, name());
    expect(m.dtype == v.dtype, name(), text_of("m is ", to_text(m), ", v ", to_text(v), "; expected equal types"));
    check(AdamwIn::norm, "the norm", {1});
    if (inputs[AdamwIn::master]) {
      check(AdamwIn::master, "the master weight", states);
      expect(weight.dtype != wide, name(),
             text_of("the weight is ", to_text(weight), "; only a bf16 weight takes a master weight"));
    }
    check(AdamwIn::hyper, "hyper", {kAdamwHypers});
    expect(required(inputs, AdamwIn::bad, name()) == Type{DType::kI32, {1}}, name(),
           text_of("bad is ", to_text(required(inputs, AdamwIn::bad, name())), "; expected i32[1]"));
    std::vector<Type> outputs{weight, required(inputs, AdamwIn::gradient, name()), m, v};
    if (inputs[AdamwIn::master]) outputs.push_back(required(inputs, AdamwIn::master, name()));
    return outputs;
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = update_cost(Op::cost(inputs, outputs, attributes), outputs, attributes.as<AdamwAttributes>().clears);
    cost.flops = 14.0 * static_cast<double>(outputs[AdamwOut::m].elements());
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override { return output; }
};

const Adamw kAdamw;

}  // namespace

Cost update_cost(Cost cost, std::span<const Type> outputs, bool clears) {
  if (!clears) cost.bytes_written -= static_cast<double>(outputs[AdamwOut::gradient].bytes());
  return cost;
}

Shape updated_shape(Shape weight, std::int64_t count) {
  if (count == 0) return weight;
  std::int64_t row = 1;
  for (std::size_t i = 1; i < weight.size(); ++i) row *= weight[i].size;
  if (count % row != 0 || count / row > weight[0].size) {
    throw Error("count",
                text_of("is ", count, ", expected whole rows of ", row, " elements, at most ", weight[0].size));
  }
  weight[0].size = count / row;
  return weight;
}

Shape gradient_shape(const Shape& weight, const Shape& gradient, std::int64_t count) {
  const Shape updated = updated_shape(weight, count);
  return gradient == updated ? updated : weight;
}

AdamwTensors adamw(const AdamwTensors& tensors, const AdamwStep& step, const AdamwAttributes& attributes) {
  const std::vector<Tensor> inputs{tensors.weight, tensors.gradient, tensors.m,  tensors.v,
                                   tensors.master, step.norm,        step.hyper, step.bad};
  const std::vector<Tensor> outputs = tensors.weight.program().append(kAdamw, attributes, inputs);
  return {outputs[AdamwOut::weight], outputs[AdamwOut::gradient], outputs[AdamwOut::m], outputs[AdamwOut::v],
          outputs.size() > AdamwOut::master ? outputs[AdamwOut::master] : Tensor()};
}

void register_adamw(OpRegistry& registry) { registry.add(kAdamw); }

}  // namespace hone
