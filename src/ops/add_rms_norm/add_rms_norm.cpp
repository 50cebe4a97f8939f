#include "ops/add_rms_norm/add_rms_norm.h"

#include <algorithm>

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"

namespace hone {
namespace {

// (dsum or none, dnormalised, sum, weight, rstd, dweight or none) -> (the gradient of both x and residual, dweight or
// nothing), dweight in place.
class AddRmsNormBackward final : public Op {
 public:
  std::string_view name() const override { return "add_rms_norm_backward"; }
  OpCategory category() const override { return OpCategory::normalization; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    std::vector<Type> outputs{required(inputs, 2, name())};
    if (inputs.size() > 5 && inputs[5]) outputs.push_back(required(inputs, 5, name()));
    return outputs;
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 9.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    return output == 1 ? std::optional<std::size_t>(5) : std::nullopt;
  }
};

const AddRmsNormBackward kBackward;

bool reads(const Node& node, ValueId id) {
  return std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end();
}

// (x, residual, weight) -> (sum, normalised, rstd [rows])
class AddRmsNorm final : public FusedOp {
 public:
  std::string_view name() const override { return "add_rms_norm"; }
  OpCategory category() const override { return OpCategory::normalization; }
  Attributes default_attributes() const override { return RmsNormAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, 0, name());
    const Type& residual = required(inputs, 1, name());
    const Type& weight = required(inputs, 2, name());
    expect(x == residual, name(), text_of("the sides are ", to_text(x), " and ", to_text(residual)));
    expect(x.shape.size() == 2 && weight.shape.size() == 1 && x.shape[1] == weight.shape[0] && x.dtype == weight.dtype,
           name(), text_of("x is ", to_text(x), ", weight ", to_text(weight), "; wanted [rows, n] and [n]"));
    return {x, x, Type{accumulator_of(x.dtype), {x.shape[0]}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 5.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dsum = builder.output_gradient(0);
    const Tensor dnormalised = builder.output_gradient(1);
    Tensor gradient = dsum;
    if (dnormalised) {
      const Tensor dweight = builder.needs(2) ? builder.accumulator(2) : Tensor();
      const std::vector<Tensor> inputs{dsum,   dnormalised, builder.output(0), builder.input(2), builder.output(2),
                                       dweight};
      const std::vector<Tensor> outputs = builder.program().append(kBackward, {}, inputs);
      gradient = outputs[0];
      if (dweight) builder.set_accumulator(2, outputs[1]);
    }
    if (!gradient) return;
    for (std::size_t i = 0; i < 2; ++i) {
      if (builder.needs(i)) builder.add(i, gradient);
    }
  }
  int fusion_place() const override { return 200; }
  // An `add` and the rms_norm that is the first to read the sum. Were another node first, or did one between the two
  // read the norm's weight, gradients would be summed in another order.
  std::optional<Fusion> fuse(const Program& program, std::size_t first) const override {
    const std::vector<Node>& nodes = program.nodes();
    const Node& sum = nodes[first];
    if (sum.op->name() != "add") return std::nullopt;
    const ValueId total = sum.outputs[0];
    std::size_t second = first + 1;
    while (second < nodes.size() && !reads(nodes[second], total)) ++second;
    if (second == nodes.size() || nodes[second].op->name() != "rms_norm") return std::nullopt;
    const Node& norm = nodes[second];
    const ValueId weight = norm.inputs[1];
    if (norm.inputs[0] != total || program.value(weight).producer >= 0 ||
        program.value(weight).type.dtype != program.value(total).type.dtype) {
      return std::nullopt;
    }
    for (std::size_t i = first + 1; i < second; ++i) {
      if (reads(nodes[i], weight)) return std::nullopt;
    }
    return Fusion{.nodes = {first, second},
                  .inputs = {sum.inputs[0], sum.inputs[1], weight},
                  .attributes = norm.attributes,
                  .outputs = {{total, 0}, {norm.outputs[0], 1}, {norm.outputs[1], 2}}};
  }
};

const AddRmsNorm kAddRmsNorm;

}  // namespace

std::pair<Tensor, Tensor> add_rms_norm(Tensor x, Tensor residual, Tensor weight, const RmsNormAttributes& attributes) {
  const std::vector<Tensor> inputs{x, residual, weight};
  const std::vector<Tensor> outputs = x.program().append(kAddRmsNorm, attributes, inputs);
  return {outputs[0], outputs[1]};
}

void register_add_rms_norm(OpRegistry& registry) {
  registry.add(kAddRmsNorm);
  registry.add(kBackward);
}

}  // namespace hone
