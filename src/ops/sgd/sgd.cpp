#include "ops/sgd/sgd.h"

#include <vector>

#include "core/error.h"
#include "ops/registry.h"
#include "program/kernel.h"

namespace hone {
namespace {

// (weight, gradient, momentum, master, norm, hyper, bad) -> those of the first four that are present, in place
// (sgd_master).
class Sgd final : public Op {
 public:
  std::string_view name() const override { return "sgd"; }
  OpCategory category() const override { return OpCategory::kOptimizer; }
  Attributes default_attributes() const override { return SgdAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& weight = required(inputs, SgdIn::weight, name());
    expect(is_floating(weight.dtype), name(), text_of("the weight is ", to_text(weight), "; expected a floating type"));
    const DType wide = accumulator_of(weight.dtype);
    const auto check = [&](std::size_t index, const char* what, const Type& wanted) {
      const Type& seen = required(inputs, index, name());
      expect(seen == wanted, name(), text_of(what, " is ", to_text(seen), "; expected ", to_text(wanted)));
    };
    const Type& gradient = required(inputs, SgdIn::gradient, name());
    if (gradient != weight) check(SgdIn::gradient, "the gradient", {wide, weight.shape});
    const bool has_momentum = attributes.as<SgdAttributes>().momentum != 0;
    std::vector<Type> outputs{weight, gradient};
    if (has_momentum) check(SgdIn::momentum, "the momentum", {wide, weight.shape});
    const std::size_t master = sgd_master(attributes.as<SgdAttributes>());
    if (inputs[master]) {
      check(master, "the master weight", {wide, weight.shape});
      expect(weight.dtype != wide, name(),
             text_of("the weight is ", to_text(weight), "; only a bf16 weight takes a master weight"));
    }
    expect(has_momentum || !inputs[SgdIn::master], name(), "a fourth input tensor is given, but momentum is 0");
    for (std::size_t i = SgdIn::momentum; i <= SgdIn::master && inputs[i]; ++i)
      outputs.push_back(required(inputs, i, name()));
    check(SgdIn::norm, "the norm", {wide, {1}});
    check(SgdIn::hyper, "hyper", {wide, {kAdamwHypers}});
    check(SgdIn::bad, "bad", {DType::kI32, {1}});
    return outputs;
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = update_cost(Op::cost(inputs, outputs, attributes), outputs, attributes.as<SgdAttributes>().clears);
    cost.flops = 7.0 * static_cast<double>(outputs[SgdOut::weight].elements());
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override { return output; }
};

const Sgd kSgd;

}  // namespace

SgdTensors sgd(const SgdTensors& tensors, const AdamwStep& step, const SgdAttributes& attributes) {
  HONE_ASSERT(tensors.momentum.valid() == (attributes.momentum != 0),
              "a momentum tensor must be given if and only if momentum is not 0; momentum is ", attributes.momentum);
  const bool has_momentum = tensors.momentum.valid();
  const std::vector<Tensor> inputs{tensors.weight,
                                   tensors.gradient,
                                   has_momentum ? tensors.momentum : tensors.master,
                                   has_momentum ? tensors.master : Tensor(),
                                   step.norm,
                                   step.hyper,
                                   step.bad};
  const std::vector<Tensor> outputs = tensors.weight.program().append(kSgd, attributes, inputs);
  SgdTensors updated{outputs[SgdOut::weight], outputs[SgdOut::gradient], {}, {}};
  if (has_momentum) updated.momentum = outputs[SgdOut::momentum];
  if (tensors.master) updated.master = outputs.back();
  return updated;
}

void register_sgd(OpRegistry& registry) { registry.add(kSgd); }

}  // namespace hone
