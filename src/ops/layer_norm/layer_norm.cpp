#include "ops/layer_norm/layer_norm.h"

#include "core/error.h"
#include "ops/layer_norm/norm_accumulator.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// (dy, x, weight, mean, rstd, dweight or none, dbias or none) -> (dx, dweight and dbias or nothing), the last two in
// place.
class LayerNormBackward final : public Op {
 public:
  std::string_view name() const override { return "layer_norm_backward"; }
  OpCategory category() const override { return OpCategory::kNormalization; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    std::vector<Type> outputs{required(inputs, LayerNormBackwardIn::x, name())};
    if (const Type* dweight = given(inputs, LayerNormBackwardIn::dweight)) {
      outputs.push_back(*dweight);
      outputs.push_back(required(inputs, LayerNormBackwardIn::dbias, name()));
    }
    return outputs;
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 12.0 * static_cast<double>(outputs[LayerNormBackwardOut::dx].elements());
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    if (output == LayerNormBackwardOut::dweight) return LayerNormBackwardIn::dweight;
    if (output == LayerNormBackwardOut::dbias) return LayerNormBackwardIn::dbias;
    return std::nullopt;
  }
};

const LayerNormBackward kLayerNormBackward;

// (x, weight, bias) -> (y, mean [rows], rstd [rows])
class LayerNorm final : public Op {
 public:
  std::string_view name() const override { return "layer_norm"; }
  OpCategory category() const override { return OpCategory::kNormalization; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return LayerNormAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, LayerNormIn::x, name());
    const Type& weight = required(inputs, LayerNormIn::weight, name());
    const Type& bias = required(inputs, LayerNormIn::bias, name());
    expect(x.shape.size() == 2 && weight.shape.size() == 1 && x.shape[1] == weight.shape[0] && weight == bias &&
               x.dtype == weight.dtype,
           name(),
           text_of("x is ", to_text(x), ", weight ", to_text(weight), ", bias ", to_text(bias),
                   "; expected [rows, n], [n] and [n]"));
    const Type statistic{accumulator_of(x.dtype), {x.shape[0]}};
    return {x, statistic, statistic};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 7.0 * static_cast<double>(outputs[LayerNormOut::y].elements());
    return cost;
  }
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (!shard_rows(builder, node)) Op::shard(builder, node);
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(LayerNormOut::y);
    if (!dy) return;
    const Tensor dweight = norm_accumulator(builder, LayerNormIn::weight, LayerNormIn::bias);
    const Tensor dbias = norm_accumulator(builder, LayerNormIn::bias, LayerNormIn::weight);
    const std::vector<Tensor> inputs{dy,
                                     builder.input(LayerNormIn::x),
                                     builder.input(LayerNormIn::weight),
                                     builder.output(LayerNormOut::mean),
                                     builder.output(LayerNormOut::rstd),
                                     dweight,
                                     dbias};
    const std::vector<Tensor> outputs = builder.program().append(kLayerNormBackward, {}, inputs);
    if (builder.needs(LayerNormIn::x)) builder.add(LayerNormIn::x, outputs[LayerNormBackwardOut::dx]);
    if (builder.needs(LayerNormIn::weight))
      builder.set_accumulator(LayerNormIn::weight, outputs[LayerNormBackwardOut::dweight]);
    if (builder.needs(LayerNormIn::bias))
      builder.set_accumulator(LayerNormIn::bias, outputs[LayerNormBackwardOut::dbias]);
  }
};

const LayerNorm kLayerNorm;

}  // namespace

Tensor layer_norm(Tensor x, Tensor weight, Tensor bias, const LayerNormAttributes& attributes) {
  const std::vector<Tensor> inputs{x, weight, bias};
  return x.program().append(kLayerNorm, attributes, inputs)[0];
}

void register_layer_norm(OpRegistry& registry) {
  registry.add(kLayerNorm);
  registry.add(kLayerNormBackward);
}

}  // namespace hone
