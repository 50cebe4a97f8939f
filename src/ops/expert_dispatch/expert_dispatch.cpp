#include "ops/expert_dispatch/expert_dispatch.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// Throws Error unless position is i32 [tokens, top_k].
void expect_position(std::string_view op, const Type& x, const Type& position) {
  expect(is_floating(x.dtype) && x.shape.size() == 2 && position.dtype == DType::kI32 && position.shape.size() == 2 &&
             position.shape[1].size > 0,
         op,
         text_of("x is ", to_text(x), ", position ", to_text(position), "; expected [rows, n] and [tokens, top_k]"));
}

// (dy, position) -> dx
class ExpertDispatchBackward final : public Op {
 public:
  std::string_view name() const override { return "expert_dispatch_backward"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& dy = required(inputs, ExpertDispatchBackwardIn::dy, name());
    const Type& position = required(inputs, ExpertDispatchBackwardIn::position, name());
    expect_position(name(), dy, position);
    expect(dy.rows() == position.elements(), name(),
           text_of("dy is ", to_text(dy), ", position ", to_text(position), "; expected a row of dy a position"));
    return {Type{dy.dtype, {position.shape[0], dy.shape[1]}}};
  }
};

const ExpertDispatchBackward kBackward;

// (x, position) -> y
class ExpertDispatch final : public Op {
 public:
  std::string_view name() const override { return "expert_dispatch"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, ExpertDispatchIn::x, name());
    const Type& position = required(inputs, ExpertDispatchIn::position, name());
    expect_position(name(), x, position);
    expect(x.shape[0] == position.shape[0], name(),
           text_of("x is ", to_text(x), ", position ", to_text(position), "; expected equal tokens"));
    const Dim& tokens = x.shape[0];
    const std::int64_t top_k = position.shape[1].size;
    return {Type{x.dtype, {Dim(tokens.size * top_k, tokens.count, tokens.factor * top_k), x.shape[1]}}};
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(ExpertDispatchIn::x)) return;
    builder.add(ExpertDispatchIn::x,
                builder.program().append1(kBackward, {}, {dy, builder.input(ExpertDispatchIn::position)}));
  }
};

const ExpertDispatch kForward;

}  // namespace

Tensor expert_dispatch(Tensor x, Tensor position) { return x.program().append1(kForward, {}, {x, position}); }

void register_expert_dispatch(OpRegistry& registry) {
  registry.add(kForward);
  registry.add(kBackward);
}

}  // namespace hone
