#include "ops/linear_logprobs/linear_logprobs.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"

namespace hone {
namespace {

double products(const Type& x, const Type& weight) {
  return 2.0 * static_cast<double>(x.elements()) * static_cast<double>(weight.rows());
}

// (dlogp, x, weight, targets, lse, dweight or none) -> (dx, dweight or nothing), dweight in place.
class LinearLogprobsBackward final : public Op {
 public:
  std::string_view name() const override { return "linear_logprobs_backward"; }
  OpCategory category() const override { return OpCategory::loss; }
  Attributes default_attributes() const override { return LinearLogprobsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    std::vector<Type> outputs{required(inputs, 1, name())};
    if (inputs.size() > 5 && inputs[5]) outputs.push_back(required(inputs, 5, name()));
    return outputs;
  }
  // The logits are computed again.
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = (outputs.size() > 1 ? 3.0 : 2.0) * products(required(inputs, 1, name()), required(inputs, 2, name()));
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    return output == 1 ? std::optional<std::size_t>(5) : std::nullopt;
  }
};

const LinearLogprobsBackward kBackward;

class LinearLogprobsOp final : public Op {
 public:
  std::string_view name() const override { return "linear_logprobs"; }
  OpCategory category() const override { return OpCategory::loss; }
  Attributes default_attributes() const override { return LinearLogprobsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, 0, name());
    const Type& weight = required(inputs, 1, name());
    const Type& targets = required(inputs, 2, name());
    expect(is_floating(x.dtype) && x.dtype == weight.dtype && x.shape.size() == 2 && weight.shape.size() == 2 &&
               x.shape[1] == weight.shape[1],
           name(),
           text_of("x is ", to_text(x), ", weight ", to_text(weight), "; wanted [rows, hidden] and [vocab, hidden]"));
    expect(targets == Type{DType::i32, {x.shape[0]}}, name(),
           text_of("targets are ", to_text(targets), "; wanted ", to_text(Type{DType::i32, {x.shape[0]}})));
    const double temperature = attributes.as<LinearLogprobsAttributes>().temperature;
    expect(temperature > 0, name(), text_of("the temperature is ", temperature, "; wanted more than 0"));
    return std::vector<Type>(4, Type{accumulator_of(x.dtype), {x.shape[0]}});
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = products(required(inputs, 0, name()), required(inputs, 1, name()));
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dlogp = builder.output_gradient(0);
    if (!dlogp) return;
    const Tensor dweight = builder.needs(1) ? builder.accumulator(1) : Tensor();
    const std::vector<Tensor> inputs{dlogp,  builder.input(0), builder.input(1), builder.input(2), builder.output(3),
                                     dweight};
    const std::vector<Tensor> outputs = builder.program().append(kBackward, node.attributes, inputs);
    if (builder.needs(0)) builder.add(0, outputs[0]);
    if (dweight) builder.set_accumulator(1, outputs[1]);
  }
};

const LinearLogprobsOp kForward;

// (dlogp, x, weight, targets, dweight or none) -> the forward pass's outputs, dx, dweight or nothing; dweight in place.
class LinearLogprobsJoint final : public FusedOp {
 public:
  std::string_view name() const override { return "linear_logprobs_joint"; }
  OpCategory category() const override { return OpCategory::loss; }
  Attributes default_attributes() const override { return LinearLogprobsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    expect(inputs.size() >= 4, name(), text_of(inputs.size(), " inputs; wanted at least 4"));
    std::vector<Type> outputs = kForward.infer(inputs.subspan(1, 3), attributes);
    const Type& dlogp = required(inputs, 0, name());
    expect(dlogp == outputs[0], name(), text_of("dlogp is ", to_text(dlogp), "; wanted ", to_text(outputs[0])));
    outputs.push_back(required(inputs, 1, name()));
    if (inputs.size() > 4 && inputs[4]) outputs.push_back(required(inputs, 4, name()));
    return outputs;
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = (outputs.size() > 5 ? 3.0 : 2.0) * products(required(inputs, 1, name()), required(inputs, 2, name()));
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    return output == 5 ? std::optional<std::size_t>(4) : std::nullopt;
  }
  int fusion_place() const override { return 300; }
  std::optional<Fusion> fuse(const Program& program, std::size_t first) const override {
    const std::vector<Node>& nodes = program.nodes();
    const Node& forward = nodes[first];
    if (forward.op != &kForward) return std::nullopt;
    const ValueId lse = forward.outputs[3];
    std::size_t second = first + 1;
    while (second < nodes.size() && (nodes[second].op != &kBackward || nodes[second].inputs[4] != lse)) ++second;
    if (second == nodes.size()) return std::nullopt;
    const Node& backward = nodes[second];
    Fusion fusion{.nodes = {first, second},
                  .inputs = {backward.inputs[0], forward.inputs[0], forward.inputs[1], forward.inputs[2],
                             backward.inputs.size() > 5 ? backward.inputs[5] : kNoValue},
                  .attributes = forward.attributes,
                  .outputs = {}};
    for (std::size_t i = 0; i < forward.outputs.size(); ++i) fusion.outputs.emplace_back(forward.outputs[i], i);
    for (std::size_t i = 0; i < backward.outputs.size(); ++i) fusion.outputs.emplace_back(backward.outputs[i], 4 + i);
    return fusion;
  }
};

const LinearLogprobsJoint kJoint;

}  // namespace

LinearLogprobs linear_logprobs(Tensor x, Tensor weight, Tensor targets, const LinearLogprobsAttributes& attributes) {
  const std::vector<Tensor> inputs{x, weight, targets};
  const std::vector<Tensor> outputs = x.program().append(kForward, attributes, inputs);
  return {outputs[0], outputs[1], outputs[2], outputs[3]};
}

void register_linear_logprobs(OpRegistry& registry) {
  registry.add(kForward);
  registry.add(kBackward);
  registry.add(kJoint);
}

}  // namespace hone
