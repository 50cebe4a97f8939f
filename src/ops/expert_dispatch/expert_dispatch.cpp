#include "ops/expert_dispatch/expert_dispatch.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

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
    expect(dy.rows() <= position.elements(), name(),
           text_of("dy is ", to_text(dy), ", position ", to_text(position), "; expected up to a row of dy a position"));
    return {Type{dy.dtype, {position.shape[0], dy.shape[1]}}};
  }
};

const ExpertDispatchBackward kExpertDispatchBackward;

class ExpertDispatchOp : public Op {
 public:
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, ExpertDispatchIn::x, name());
    const Type& position = required(inputs, ExpertDispatchIn::position, name());
    expect_position(name(), x, position);
    expect(x.shape[0] == position.shape[0], name(),
           text_of("x is ", to_text(x), ", position ", to_text(position), "; expected equal tokens"));
    return {Type{x.dtype, {rows_of(position, attributes), x.shape[1]}}};
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(ExpertDispatchIn::x)) return;
    builder.add(ExpertDispatchIn::x, builder.program().append1(kExpertDispatchBackward, {},
                                                               {dy, builder.input(ExpertDispatchIn::position)}));
  }

 protected:
  [[nodiscard]] virtual Dim rows_of(const Type& position, const Attributes& attributes) const = 0;
};

// (x, position) -> y
class ExpertDispatchPart final : public ExpertDispatchOp {
 public:
  std::string_view name() const override { return "expert_dispatch_part"; }
  Attributes default_attributes() const override { return ExpertPartAttributes{}; }

 protected:
  Dim rows_of(const Type& position, const Attributes& attributes) const override {
    return rows_of_part(position, attributes.as<ExpertPartAttributes>());
  }
};

const ExpertDispatchPart kExpertDispatchPart;

// (x, position) -> y
class ExpertDispatch final : public ExpertDispatchOp {
 public:
  std::string_view name() const override { return "expert_dispatch"; }
  // Each rank takes the rows of its experts.
  void shard(ShardBuilder& builder, const Node& node) const override {
    const Tensor position = builder.input(ExpertDispatchIn::position);
    const ExpertPartAttributes* const part = part_of_order(position);
    if (part == nullptr || builder.division(ExpertDispatchIn::x) != kWhole) return Op::shard(builder, node);
    builder.set_output(0, expert_dispatch_part(builder.entered(ExpertDispatchIn::x), position, *part), kDividedRows);
  }

 protected:
  Dim rows_of(const Type& position, const Attributes&) const override {
    const Dim& tokens = position.shape[0];
    const std::int64_t top_k = position.shape[1].size;
    return {tokens.size * top_k, tokens.count, tokens.factor * top_k};
  }
};

const ExpertDispatch kExpertDispatch;

}  // namespace

Tensor expert_dispatch(Tensor x, Tensor position) { return x.program().append1(kExpertDispatch, {}, {x, position}); }

Tensor expert_dispatch_part(Tensor x, Tensor position, const ExpertPartAttributes& part) {
  return x.program().append1(kExpertDispatchPart, part, {x, position});
}

void register_expert_dispatch(OpRegistry& registry) {
  registry.add(kExpertDispatchPart);
  registry.add(kExpertDispatch);
  registry.add(kExpertDispatchBackward);
}

}  // namespace hone
