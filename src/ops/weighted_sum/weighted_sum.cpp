#include "ops/weighted_sum/weighted_sum.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// (dy [1], weights) -> dvalues
class WeightedSumBackward final : public Op {
 public:
  std::string_view name() const override { return "weighted_sum_backward"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    return {required(inputs, WeightedSumBackwardIn::weights, name())};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = static_cast<double>(outputs[0].elements());
    return cost;
  }
};

const WeightedSumBackward kWeightedSumBackward;

class WeightedSum final : public Op {
 public:
  std::string_view name() const override { return "weighted_sum"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  bool is_token_wise() const override { return true; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& values = required(inputs, WeightedSumIn::values, name());
    const Type& weights = required(inputs, WeightedSumIn::weights, name());
    expect(values == weights && values.shape.size() == 1 && values.dtype == accumulator_of(values.dtype), name(),
           text_of("values are ", to_text(values), ", weights ", to_text(weights), "; expected f32[rows] for both"));
    return {Type{values.dtype, {1}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 2.0 * static_cast<double>(required(inputs, WeightedSumIn::values, name()).elements());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(WeightedSumIn::values)) return;
    builder.add(WeightedSumIn::values,
                builder.program().append1(kWeightedSumBackward, {}, {dy, builder.input(WeightedSumIn::weights)}));
  }
};

const WeightedSum kWeightedSum;

}  // namespace

Tensor weighted_sum(Tensor values, Tensor weights) {
  return values.program().append1(kWeightedSum, {}, {values, weights});
}

void register_weighted_sum(OpRegistry& registry) {
  registry.add(kWeightedSum);
  registry.add(kWeightedSumBackward);
}

}  // namespace hone
