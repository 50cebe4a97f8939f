#include "ops/toy_square/toy_square.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// (dy, x) -> dx = 2 factor x dy
class ToySquareBackward final : public Op {
 public:
  std::string_view name() const override { return "toy_square_backward"; }
  OpCategory category() const override { return OpCategory::kActivation; }
  Attributes default_attributes() const override { return ToySquareAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    return {required(inputs, ToySquareBackwardIn::x, name())};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 3.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
};

const ToySquareBackward kToySquareBackward;

class ToySquare final : public Op {
 public:
  std::string_view name() const override { return "toy_square"; }
  OpCategory category() const override { return OpCategory::kActivation; }
  Attributes default_attributes() const override { return ToySquareAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, 0, name());
    expect(is_floating(x.dtype), name(), text_of("x is ", to_text(x), "; wanted a floating type"));
    return {x};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 2.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(0)) return;
    builder.add(0, builder.program().append1(kToySquareBackward, node.attributes, {dy, builder.input(0)}));
  }
};

const ToySquare kToySquare;

}  // namespace

Tensor toy_square(Tensor x, const ToySquareAttributes& attributes) {
  return x.program().append1(kToySquare, attributes, {x});
}

void register_toy_square(OpRegistry& registry) {
  registry.add(kToySquare);
  registry.add(kToySquareBackward);
}

}  // namespace hone
