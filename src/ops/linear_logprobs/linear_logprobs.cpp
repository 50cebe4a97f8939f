#include "ops/linear_logprobs/linear_logprobs.h"

#include "core/error.h"
#include "ops/ranks/ranks.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

double products(const Type& x, const Type& weight) {
  return 2.0 * static_cast<double>(x.elements()) * static_cast<double>(weight.rows());
}

// (dlogp, x, weight, targets, lse, dweight or none) -> (dx, dweight or nothing), dweight in place.
class LinearLogprobsBackward : public Op {
 public:
  std::string_view name() const override { return "linear_logprobs_backward"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  Attributes default_attributes() const override { return LinearLogprobsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    std::vector<Type> outputs{required(inputs, LinearLogprobsBackwardIn::x, name())};
    if (const Type* dweight = given(inputs, LinearLogprobsBackwardIn::dweight)) outputs.push_back(*dweight);
    return outputs;
  }
  // Includes the GEMM that computes the logits again.
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = (outputs.size() > LinearLogprobsBackwardOut::dweight ? 3.0 : 2.0) *
                 products(required(inputs, LinearLogprobsBackwardIn::x, name()),
                          required(inputs, LinearLogprobsBackwardIn::weight, name()));
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    return output == LinearLogprobsBackwardOut::dweight ? std::optional<std::size_t>(LinearLogprobsBackwardIn::dweight)
                                                        : std::nullopt;
  }
};

const LinearLogprobsBackward kLinearLogprobsBackward;

// The same of a part of the vocabulary; lse is that of the whole.
class LinearLogprobsPartBackward final : public LinearLogprobsBackward {
 public:
  std::string_view name() const override { return "linear_logprobs_part_backward"; }
  Attributes default_attributes() const override { return LinearLogprobsPartAttributes{}; }
};

const LinearLogprobsPartBackward kPartBackward;

// Appends the backward pass of a node of linear_logprobs or linear_logprobs_part.
void append_backward(GradientBuilder& builder, const Op& backward, const Attributes& attributes) {
  const Tensor dlogp = builder.output_gradient(LinearLogprobsOut::logp);
  if (!dlogp) return;
  const Tensor dweight =
      builder.needs(LinearLogprobsIn::weight) ? builder.accumulator(LinearLogprobsIn::weight) : Tensor();
  const std::vector<Tensor> inputs{dlogp,
                                   builder.input(LinearLogprobsIn::x),
                                   builder.input(LinearLogprobsIn::weight),
                                   builder.input(LinearLogprobsIn::targets),
                                   builder.output(LinearLogprobsOut::lse),
                                   dweight};
  const std::vector<Tensor> outputs = builder.program().append(backward, attributes, inputs);
  if (builder.needs(LinearLogprobsIn::x)) builder.add(LinearLogprobsIn::x, outputs[LinearLogprobsBackwardOut::dx]);
  if (dweight) builder.set_accumulator(LinearLogprobsIn::weight, outputs[LinearLogprobsBackwardOut::dweight]);
}

// Returns the types of the outputs of both operations.
std::vector<Type> checked_outputs(InputTypes inputs, double temperature, std::string_view name) {
  const Type& x = required(inputs, LinearLogprobsIn::x, name);
  const Type& weight = required(inputs, LinearLogprobsIn::weight, name);
  const Type& targets = required(inputs, LinearLogprobsIn::targets, name);
  expect(is_floating(x.dtype) && x.dtype == weight.dtype && x.shape.size() == 2 && weight.shape.size() == 2 &&
             x.shape[1] == weight.shape[1],
         name,
         text_of("x is ", to_text(x), ", weight ", to_text(weight), "; expected [rows, hidden] and [vocab, hidden]"));
  expect(targets == Type{DType::kI32, {x.shape[0]}}, name,
         text_of("targets are ", to_text(targets), "; expected ", to_text(Type{DType::kI32, {x.shape[0]}})));
  expect(temperature > 0, name, text_of("the temperature is ", temperature, "; it must be more than 0"));
  return std::vector<Type>(4, Type{accumulator_of(x.dtype), {x.shape[0]}});
}

// (x, weight, targets) -> (logp, entropy, hit, lse), for the rows of the weight of one rank.
class LinearLogprobsPart final : public Op {
 public:
  std::string_view name() const override { return "linear_logprobs_part"; }
  // Its time is that of the GEMM; what the ranks exchange is small. Programs that contain it communicate.
  OpCategory category() const override { return OpCategory::kCommunication; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return LinearLogprobsPartAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<LinearLogprobsPartAttributes>();
    expect_sizes(name(), {a.first, a.ranks});
    expect(a.first >= 0 && a.ranks > 0, name(), text_of("first is ", a.first, ", ranks ", a.ranks));
    return checked_outputs(inputs, a.temperature, name());
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops =
        products(required(inputs, LinearLogprobsIn::x, name()), required(inputs, LinearLogprobsIn::weight, name()));
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    append_backward(builder, kPartBackward, node.attributes);
  }
};

const LinearLogprobsPart kLinearLogprobsPart;

class LinearLogprobsOp final : public Op {
 public:
  std::string_view name() const override { return "linear_logprobs"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return LinearLogprobsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    return checked_outputs(inputs, attributes.as<LinearLogprobsAttributes>().temperature, name());
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops =
        products(required(inputs, LinearLogprobsIn::x, name()), required(inputs, LinearLogprobsIn::weight, name()));
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    append_backward(builder, kLinearLogprobsBackward, node.attributes);
  }
  // Each rank has some rows of the vocabulary.
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (builder.division(LinearLogprobsIn::weight) != kDividedRows) return Op::shard(builder, node);
    const Tensor weight = builder.input(LinearLogprobsIn::weight);
    const LinearLogprobs part =
        linear_logprobs_part(builder.entered(LinearLogprobsIn::x), weight, builder.input(LinearLogprobsIn::targets),
                             {.temperature = node.attributes.as<LinearLogprobsAttributes>().temperature,
                              .first = builder.rank() * weight.dim(0),
                              .ranks = builder.ranks()});
    builder.set_output(LinearLogprobsOut::logp, part.logp, kWhole);
    builder.set_output(LinearLogprobsOut::entropy, part.entropy, kWhole);
    builder.set_output(LinearLogprobsOut::hit, part.hit, kWhole);
    builder.set_output(LinearLogprobsOut::lse, part.lse, kWhole);
  }
};

const LinearLogprobsOp kLinearLogprobs;

// (dlogp, x, weight, targets, dweight or none) -> the forward pass's outputs, dx, dweight or nothing; dweight in place.
class LinearLogprobsJoint final : public FusedOp {
 public:
  std::string_view name() const override { return "linear_logprobs_joint"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  Attributes default_attributes() const override { return LinearLogprobsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    expect(inputs.size() > LinearLogprobsJointIn::targets, name(),
           text_of(inputs.size(), " inputs; expected at least 4"));
    std::vector<Type> outputs = kLinearLogprobs.infer(inputs.subspan(LinearLogprobsJointIn::x, 3), attributes);
    const Type& dlogp = required(inputs, LinearLogprobsJointIn::dlogp, name());
    expect(dlogp == outputs[LinearLogprobsJointOut::logp], name(),
           text_of("dlogp is ", to_text(dlogp), "; expected ", to_text(outputs[LinearLogprobsJointOut::logp])));
    outputs.push_back(required(inputs, LinearLogprobsJointIn::x, name()));
    if (const Type* dweight = given(inputs, LinearLogprobsJointIn::dweight)) outputs.push_back(*dweight);
    return outputs;
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = (outputs.size() > LinearLogprobsJointOut::dweight ? 3.0 : 2.0) *
                 products(required(inputs, LinearLogprobsJointIn::x, name()),
                          required(inputs, LinearLogprobsJointIn::weight, name()));
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    return output == LinearLogprobsJointOut::dweight ? std::optional<std::size_t>(LinearLogprobsJointIn::dweight)
                                                     : std::nullopt;
  }
  int fusion_priority() const override { return 300; }
  std::optional<Fusion> fuse(const Program& program, std::size_t first) const override {
    const std::vector<Node>& nodes = program.nodes();
    const Node& forward = nodes[first];
    if (forward.op != &kLinearLogprobs) return std::nullopt;
    const ValueId lse = forward.outputs[LinearLogprobsOut::lse];
    std::size_t second = first + 1;
    while (second < nodes.size() &&
           (nodes[second].op != &kLinearLogprobsBackward || nodes[second].inputs[LinearLogprobsBackwardIn::lse] != lse))
      ++second;
    if (second == nodes.size()) return std::nullopt;
    const Node& backward = nodes[second];
    Fusion fusion{.nodes = {first, second},
                  .inputs = {backward.inputs[LinearLogprobsBackwardIn::dlogp], forward.inputs[LinearLogprobsIn::x],
                             forward.inputs[LinearLogprobsIn::weight], forward.inputs[LinearLogprobsIn::targets],
                             backward.inputs.size() > LinearLogprobsBackwardIn::dweight
                                 ? backward.inputs[LinearLogprobsBackwardIn::dweight]
                                 : kNoValue},
                  .attributes = forward.attributes,
                  .outputs = {}};
    for (std::size_t i = 0; i < forward.outputs.size(); ++i) fusion.outputs.emplace_back(forward.outputs[i], i);
    for (std::size_t i = 0; i < backward.outputs.size(); ++i)
      fusion.outputs.emplace_back(backward.outputs[i], LinearLogprobsJointOut::dx + i);
    return fusion;
  }
};

const LinearLogprobsJoint kJoint;

LinearLogprobs outputs_of(const std::vector<Tensor>& outputs) {
  return {outputs[LinearLogprobsOut::logp], outputs[LinearLogprobsOut::entropy], outputs[LinearLogprobsOut::hit],
          outputs[LinearLogprobsOut::lse]};
}

}  // namespace

LinearLogprobs linear_logprobs(Tensor x, Tensor weight, Tensor targets, const LinearLogprobsAttributes& attributes) {
  const std::vector<Tensor> inputs{x, weight, targets};
  return outputs_of(x.program().append(kLinearLogprobs, attributes, inputs));
}

LinearLogprobs linear_logprobs_part(Tensor x, Tensor weight, Tensor targets,
                                    const LinearLogprobsPartAttributes& attributes) {
  const std::vector<Tensor> inputs{x, weight, targets};
  return outputs_of(x.program().append(kLinearLogprobsPart, attributes, inputs));
}

void register_linear_logprobs(OpRegistry& registry) {
  registry.add(kLinearLogprobs);
  registry.add(kLinearLogprobsBackward);
  registry.add(kJoint);
  registry.add(kLinearLogprobsPart);
  registry.add(kPartBackward);
}

}  // namespace hone
