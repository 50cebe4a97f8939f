#include "ops/gelu/gelu.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// (dy, x) -> dx
class GeluBackward final : public Op {
 public:
  std::string_view name() const override { return "gelu_backward"; }
  OpCategory category() const override { return OpCategory::kActivation; }
  Attributes default_attributes() const override { return GeluAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    return {required(inputs, GeluBackwardIn::x, name())};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 15.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
};

const GeluBackward kGeluBackward;

// (x) -> y
class Gelu final : public Op {
 public:
  std::string_view name() const override { return "gelu"; }
  OpCategory category() const override { return OpCategory::kActivation; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return GeluAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, 0, name());
    expect(is_floating(x.dtype), name(), text_of("x is ", to_text(x), "; expected a floating type"));
    const std::string& approximate = attributes.as<GeluAttributes>().approximate;
    expect(approximate == "tanh" || approximate == "none", name(),
           text_of("approximate is '", approximate, "'; expected tanh or none"));
    return {x};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 10.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(0)) return;
    builder.add(0, builder.program().append1(kGeluBackward, node.attributes, {dy, builder.input(0)}));
  }
  // Each rank has some columns of x and computes the same columns of y.
  void shard(ShardBuilder& builder, const Node& node) const override {
    shard_alike(builder, node.attributes, builder.division(0));
  }
};

const Gelu kGelu;

}  // namespace

Tensor gelu(Tensor x, const GeluAttributes& attributes) { return x.program().append1(kGelu, attributes, {x}); }

void register_gelu(OpRegistry& registry) {
  registry.add(kGelu);
  registry.add(kGeluBackward);
}

}  // namespace hone
