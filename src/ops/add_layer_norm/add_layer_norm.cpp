#include "ops/add_layer_norm/add_layer_norm.h"

#include "core/error.h"
#include "ops/add/add.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/layer_norm/norm_accumulator.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// (dsum or none, dnormalised, sum, weight, mean, rstd, dweight or none, dbias or none) -> (gradient of both x and
// residual, dweight and dbias or nothing), the last two in place.
class AddLayerNormBackward final : public Op {
 public:
  std::string_view name() const override { return "add_layer_norm_backward"; }
  OpCategory category() const override { return OpCategory::kNormalization; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    std::vector<Type> outputs{required(inputs, AddLayerNormBackwardIn::x, name())};
    if (const Type* dweight = given(inputs, AddLayerNormBackwardIn::dweight)) {
      outputs.push_back(*dweight);
      outputs.push_back(required(inputs, AddLayerNormBackwardIn::dbias, name()));
    }
    return outputs;
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 13.0 * static_cast<double>(outputs[AddLayerNormBackwardOut::dx].elements());
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    if (output == AddLayerNormBackwardOut::dweight) return AddLayerNormBackwardIn::dweight;
    if (output == AddLayerNormBackwardOut::dbias) return AddLayerNormBackwardIn::dbias;
    return std::nullopt;
  }
};

const AddLayerNormBackward kAddLayerNormBackward;

// (x, residual, weight, bias) -> (sum, normalised, mean [rows], rstd [rows])
class AddLayerNorm final : public FusedOp {
 public:
  std::string_view name() const override { return "add_layer_norm"; }
  OpCategory category() const override { return OpCategory::kNormalization; }
  Attributes default_attributes() const override { return LayerNormAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, AddLayerNormIn::x, name());
    const Type& residual = required(inputs, AddLayerNormIn::residual, name());
    const Type& weight = required(inputs, AddLayerNormIn::weight, name());
    const Type& bias = required(inputs, AddLayerNormIn::bias, name());
    expect(x == residual, name(),
           text_of("x and residual must have one type, not ", to_text(x), " and ", to_text(residual)));
    expect(x.shape.size() == 2 && weight.shape.size() == 1 && x.shape[1] == weight.shape[0] && weight == bias &&
               x.dtype == weight.dtype,
           name(),
           text_of("x is ", to_text(x), ", weight ", to_text(weight), ", bias ", to_text(bias),
                   "; expected [rows, n], [n] and [n]"));
    const Type statistic{accumulator_of(x.dtype), {x.shape[0]}};
    return {x, x, statistic, statistic};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 8.0 * static_cast<double>(outputs[AddLayerNormOut::sum].elements());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dsum = builder.output_gradient(AddLayerNormOut::sum);
    const Tensor dnormalised = builder.output_gradient(AddLayerNormOut::y);
    Tensor gradient = dsum;
    if (dnormalised) {
      const Tensor dweight = norm_accumulator(builder, AddLayerNormIn::weight, AddLayerNormIn::bias);
      const Tensor dbias = norm_accumulator(builder, AddLayerNormIn::bias, AddLayerNormIn::weight);
      const std::vector<Tensor> inputs{dsum,
                                       dnormalised,
                                       builder.output(AddLayerNormOut::sum),
                                       builder.input(AddLayerNormIn::weight),
                                       builder.output(AddLayerNormOut::mean),
                                       builder.output(AddLayerNormOut::rstd),
                                       dweight,
                                       dbias};
      const std::vector<Tensor> outputs = builder.program().append(kAddLayerNormBackward, {}, inputs);
      gradient = outputs[AddLayerNormBackwardOut::dx];
      if (builder.needs(AddLayerNormIn::weight))
        builder.set_accumulator(AddLayerNormIn::weight, outputs[AddLayerNormBackwardOut::dweight]);
      if (builder.needs(AddLayerNormIn::bias))
        builder.set_accumulator(AddLayerNormIn::bias, outputs[AddLayerNormBackwardOut::dbias]);
    }
    if (!gradient) return;
    for (const std::size_t i : {AddLayerNormIn::x, AddLayerNormIn::residual}) {
      if (builder.needs(i)) builder.add(i, gradient);
    }
  }
  int fusion_priority() const override { return 100; }
  // Fuses an `add` and the layer_norm that is the first node to read the sum. If another node read the sum first, or a
  // node between the two read weight or bias, gradients would be summed in another order.
  std::optional<Fusion> fuse(const Program& program, std::size_t first) const override {
    const std::vector<Node>& nodes = program.nodes();
    const Node& sum = nodes[first];
    if (sum.op->name() != "add") return std::nullopt;
    const ValueId total = sum.outputs[0];
    std::size_t second = first + 1;
    while (second < nodes.size() && !reads(nodes[second], total)) ++second;
    if (second == nodes.size() || nodes[second].op->name() != "layer_norm") return std::nullopt;
    const Node& norm = nodes[second];
    const ValueId weight = norm.inputs[LayerNormIn::weight];
    const ValueId bias = norm.inputs[LayerNormIn::bias];
    if (norm.inputs[LayerNormIn::x] != total || program.value(weight).producer >= 0 ||
        program.value(bias).producer >= 0) {
      return std::nullopt;
    }
    for (std::size_t i = first + 1; i < second; ++i) {
      if (reads(nodes[i], weight) || reads(nodes[i], bias)) return std::nullopt;
    }
    return Fusion{.nodes = {first, second},
                  .inputs = {sum.inputs[AddIn::a], sum.inputs[AddIn::b], weight, bias},
                  .attributes = norm.attributes,
                  .outputs = {{total, AddLayerNormOut::sum},
                              {norm.outputs[LayerNormOut::y], AddLayerNormOut::y},
                              {norm.outputs[LayerNormOut::mean], AddLayerNormOut::mean},
                              {norm.outputs[LayerNormOut::rstd], AddLayerNormOut::rstd}}};
  }
};

const AddLayerNorm kAddLayerNorm;

}  // namespace

std::pair<Tensor, Tensor> add_layer_norm(Tensor x, Tensor residual, Tensor weight, Tensor bias,
                                         const LayerNormAttributes& attributes) {
  const std::vector<Tensor> inputs{x, residual, weight, bias};
  const std::vector<Tensor> outputs = x.program().append(kAddLayerNorm, attributes, inputs);
  return {outputs[AddLayerNormOut::sum], outputs[AddLayerNormOut::y]};
}

void register_add_layer_norm(OpRegistry& registry) {
  registry.add(kAddLayerNorm);
  registry.add(kAddLayerNormBackward);
}

}  // namespace hone
