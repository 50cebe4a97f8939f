#include "ops/scale/scale.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

class Scale final : public Op {
 public:
  std::string_view name() const override { return "scale"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return ScaleAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, 0, name());
    expect(is_floating(x.dtype), name(), text_of("x is ", to_text(x), "; expected a floating type"));
    return {x};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = static_cast<double>(outputs[0].elements());
    return cost;
  }
  void shard(ShardBuilder& builder, const Node& node) const override {
    const std::int64_t division = builder.division(0);
    if (division == kWhole) return Op::shard(builder, node);
    shard_alike(builder, node.attributes, division);
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (dy && builder.needs(0)) builder.add(0, scale(dy, node.attributes.as<ScaleAttributes>().factor));
  }
};

const Scale kScale;

}  // namespace

Tensor scale(Tensor x, double factor) { return x.program().append1(kScale, ScaleAttributes{.factor = factor}, {x}); }

void register_scale(OpRegistry& registry) { registry.add(kScale); }

}  // namespace hone
