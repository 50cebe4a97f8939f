#include "ops/rms_norm/rms_norm.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// (dy, x, weight, rstd, dweight or none) -> (dx, dweight or nothing), dweight in place.
class RmsNormBackward final : public Op {
 public:
  std::string_view name() const override { return "rms_norm_backward"; }
  OpCategory category() const override { return OpCategory::kNormalization; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    std::vector<Type> outputs{required(inputs, RmsNormBackwardIn::x, name())};
    if (const Type* dweight = given(inputs, RmsNormBackwardIn::dweight)) outputs.push_back(*dweight);
    return outputs;
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 8.0 * static_cast<double>(outputs[RmsNormBackwardOut::dx].elements());
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    return output == RmsNormBackwardOut::dweight ? std::optional<std::size_t>(RmsNormBackwardIn::dweight)
                                                 : std::nullopt;
  }
};

const RmsNormBackward kRmsNormBackward;

// (x, weight) -> (y, rstd [rows])
class RmsNorm final : public Op {
 public:
  std::string_view name() const override { return "rms_norm"; }
  OpCategory category() const override { return OpCategory::kNormalization; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return RmsNormAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, RmsNormIn::x, name());
    const Type& weight = required(inputs, RmsNormIn::weight, name());
    expect(x.shape.size() == 2 && weight.shape.size() == 1 && x.shape[1] == weight.shape[0], name(),
           text_of("x is ", to_text(x), ", weight ", to_text(weight), "; expected [rows, n] and [n]"));
    return {x, Type{accumulator_of(x.dtype), {x.shape[0]}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 4.0 * static_cast<double>(outputs[RmsNormOut::y].elements());
    return cost;
  }
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (!shard_rows(builder, node)) Op::shard(builder, node);
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(RmsNormOut::y);
    if (!dy) return;
    const Tensor dweight = builder.needs(RmsNormIn::weight) ? builder.accumulator(RmsNormIn::weight) : Tensor();
    const std::vector<Tensor> inputs{dy, builder.input(RmsNormIn::x), builder.input(RmsNormIn::weight),
                                     builder.output(RmsNormOut::rstd), dweight};
    const std::vector<Tensor> outputs = builder.program().append(kRmsNormBackward, {}, inputs);
    if (builder.needs(RmsNormIn::x)) builder.add(RmsNormIn::x, outputs[RmsNormBackwardOut::dx]);
    if (dweight) builder.set_accumulator(RmsNormIn::weight, outputs[RmsNormBackwardOut::dweight]);
  }
};

const RmsNorm kRmsNorm;

}  // namespace

Tensor rms_norm(Tensor x, Tensor weight, const RmsNormAttributes& attributes) {
  const std::vector<Tensor> inputs{x, weight};
  return x.program().append(kRmsNorm, attributes, inputs)[0];
}

void register_rms_norm(OpRegistry& registry) {
  registry.add(kRmsNorm);
  registry.add(kRmsNormBackward);
}

}  // namespace hone
