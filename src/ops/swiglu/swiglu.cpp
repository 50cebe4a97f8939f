#include "ops/swiglu/swiglu.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// (dy, gate_up) -> dgate_up
class SwigluBackward final : public Op {
 public:
  std::string_view name() const override { return "swiglu_backward"; }
  OpCategory category() const override { return OpCategory::kActivation; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    return {required(inputs, SwigluBackwardIn::gate_up, name())};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 6.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
};

const SwigluBackward kSwigluBackward;

// (gate_up) -> y
class Swiglu final : public Op {
 public:
  std::string_view name() const override { return "swiglu"; }
  OpCategory category() const override { return OpCategory::kActivation; }
  bool is_token_wise() const override { return true; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& gate_up = required(inputs, 0, name());
    expect(gate_up.shape.size() == 2 && gate_up.shape[1].size % 2 == 0, name(),
           text_of("gate_up is ", to_text(gate_up), "; expected [rows, 2 n]"));
    return {Type{gate_up.dtype, {gate_up.shape[0], gate_up.shape[1].size / 2}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 5.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (dy && builder.needs(0)) builder.add(0, swiglu_gradient(dy, builder.input(0)));
  }
  // Each rank has the same columns of gate and of up, and computes these columns of y.
  void shard(ShardBuilder& builder, const Node& node) const override {
    shard_alike(builder, node.attributes, builder.division(0));
  }
};

const Swiglu kSwiglu;

}  // namespace

Tensor swiglu(Tensor gate_up) { return gate_up.program().append1(kSwiglu, {}, {gate_up}); }

Tensor swiglu_gradient(Tensor dy, Tensor gate_up) { return dy.program().append1(kSwigluBackward, {}, {dy, gate_up}); }

void register_swiglu(OpRegistry& registry) {
  registry.add(kSwiglu);
  registry.add(kSwigluBackward);
}

}  // namespace hone
