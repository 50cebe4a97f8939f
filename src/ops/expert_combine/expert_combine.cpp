#include "ops/expert_combine/expert_combine.h"

#include <array>

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

void expect_operands(std::string_view op, const Type& y, const Type& weight, const Type& position) {
  expect(is_floating(y.dtype) && y.shape.size() == 2 && position.dtype == DType::kI32 && position.shape.size() == 2 &&
             weight == Type{accumulator_of(y.dtype), position.shape} && y.rows() <= position.elements(),
         op,
         text_of("y is ", to_text(y), ", weight ", to_text(weight), ", position ", to_text(position),
                 "; expected up to [top_k x tokens, n] and twice [tokens, top_k]"));
}

// (dout, y, weight, position) -> dy, dweight
class ExpertCombineBackward final : public Op {
 public:
  std::string_view name() const override { return "expert_combine_backward"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& y = required(inputs, ExpertCombineBackwardIn::y, name());
    const Type& weight = required(inputs, ExpertCombineBackwardIn::weight, name());
    const Type& position = required(inputs, ExpertCombineBackwardIn::position, name());
    expect_operands(name(), y, weight, position);
    const Type& dout = required(inputs, ExpertCombineBackwardIn::dout, name());
    expect(dout == Type{y.dtype, {position.shape[0], y.shape[1]}}, name(),
           text_of("dout is ", to_text(dout), ", y ", to_text(y), "; expected [tokens, n]"));
    return {y, weight};
  }
};

const ExpertCombineBackward kExpertCombineBackward;

// (y, weight, position) -> out
class ExpertCombine final : public Op {
 public:
  std::string_view name() const override { return "expert_combine"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& y = required(inputs, ExpertCombineIn::y, name());
    const Type& position = required(inputs, ExpertCombineIn::position, name());
    expect_operands(name(), y, required(inputs, ExpertCombineIn::weight, name()), position);
    return {Type{y.dtype, {position.shape[0], y.shape[1]}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 2.0 * static_cast<double>(required(inputs, ExpertCombineIn::y, name()).elements());
    return cost;
  }
  // Each rank adds the results of its experts.
  void shard(ShardBuilder& builder, const Node& node) const override {
    const bool has_part = builder.division(ExpertCombineIn::y) == kDividedRows &&
                          builder.division(ExpertCombineIn::position) == kDividedRows &&
                          builder.division(ExpertCombineIn::weight) == kWhole;
    if (!has_part) return Op::shard(builder, node);
    builder.set_addend(0, expert_combine(builder.input(ExpertCombineIn::y), builder.entered(ExpertCombineIn::weight),
                                         builder.input(ExpertCombineIn::position)));
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dout = builder.output_gradient(0);
    if (!dout || !(builder.needs(ExpertCombineIn::y) || builder.needs(ExpertCombineIn::weight))) return;
    const std::array<Tensor, 4> inputs{dout, builder.input(ExpertCombineIn::y), builder.input(ExpertCombineIn::weight),
                                       builder.input(ExpertCombineIn::position)};
    const std::vector<Tensor> gradients = builder.program().append(kExpertCombineBackward, {}, inputs);
    if (builder.needs(ExpertCombineIn::y)) builder.add(ExpertCombineIn::y, gradients[ExpertCombineBackwardOut::dy]);
    if (builder.needs(ExpertCombineIn::weight)) {
      builder.add(ExpertCombineIn::weight, gradients[ExpertCombineBackwardOut::dweight]);
    }
  }
};

const ExpertCombine kExpertCombine;

}  // namespace

Tensor expert_combine(Tensor y, Tensor weight, Tensor position) {
  return y.program().append1(kExpertCombine, {}, {y, weight, position});
}

void register_expert_combine(OpRegistry& registry) {
  registry.add(kExpertCombine);
  registry.add(kExpertCombineBackward);
}

}  // namespace hone
