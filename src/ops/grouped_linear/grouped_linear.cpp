#include "ops/grouped_linear/grouped_linear.h"

#include "core/error.h"
#include "ops/accumulated.h"
#include "ops/expert_order/expert_order.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

void expect_weight(std::string_view op, const Type& weight, const Type& start, std::int64_t experts) {
  expect_sizes(op, {experts});
  expect(experts > 0 && weight.shape.size() == 2 && weight.shape[0].size % experts == 0 &&
             start == Type{DType::kI32, {experts + 1}},
         op,
         text_of("weight is ", to_text(weight), ", start ", to_text(start), " of ", experts,
                 " experts; expected [experts x n, k] and i32[experts + 1]"));
}

// `rows` of the experts, `columns` of each row's product.
Cost grouped_linear_product_cost(const Cost& traffic, const Type& rows, std::int64_t columns,
                                 const Attributes& attributes) {
  Cost cost = traffic;
  cost.flops = 2.0 * static_cast<double>(rows.elements()) * static_cast<double>(columns) *
               attributes.as<GroupedLinearAttributes>().share;
  return cost;
}

// (dy, weight, start) -> dx
class GroupedLinearInputGradient final : public Op {
 public:
  std::string_view name() const override { return "grouped_linear_input_gradient"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  Attributes default_attributes() const override { return GroupedLinearAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& dy = required(inputs, GroupedLinearInputGradientIn::dy, name());
    const Type& weight = required(inputs, GroupedLinearInputGradientIn::weight, name());
    const std::int64_t experts = attributes.as<GroupedLinearAttributes>().experts;
    expect_weight(name(), weight, required(inputs, GroupedLinearInputGradientIn::start, name()), experts);
    expect(dy.shape.size() == 2 && dy.dtype == weight.dtype && dy.shape[1].size * experts == weight.shape[0].size,
           name(), text_of("dy is ", to_text(dy), ", weight ", to_text(weight), " of ", experts, " experts"));
    return {Type{dy.dtype, {dy.shape[0], weight.shape[1]}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return grouped_linear_product_cost(Op::cost(inputs, outputs, attributes), outputs[0],
                                       required(inputs, GroupedLinearInputGradientIn::dy, name()).shape[1].size,
                                       attributes);
  }
};

// (dy, x, start, dweight, accumulated or none) -> dweight, in place
class GroupedLinearWeightGradient final : public Op {
 public:
  std::string_view name() const override { return "grouped_linear_weight_gradient"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  Attributes default_attributes() const override { return GroupedLinearAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& dy = required(inputs, GroupedLinearWeightGradientIn::dy, name());
    const Type& x = required(inputs, GroupedLinearWeightGradientIn::x, name());
    const Type& dweight = required(inputs, GroupedLinearWeightGradientIn::dweight, name());
    const std::int64_t experts = attributes.as<GroupedLinearAttributes>().experts;
    expect_weight(name(), dweight, required(inputs, GroupedLinearWeightGradientIn::start, name()), experts);
    expect(dy.shape.size() == 2 && x.shape.size() == 2 && dy.shape[0] == x.shape[0] &&
               dy.shape[1].size * experts == dweight.shape[0].size && x.shape[1] == dweight.shape[1],
           name(), text_of("dy is ", to_text(dy), ", x ", to_text(x), ", dweight ", to_text(dweight)));
    expect_accumulated(inputs, GroupedLinearWeightGradientIn::accumulated, name());
    return {dweight};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const Cost traffic = first_traffic(Op::cost(inputs, outputs, attributes), inputs,
                                       GroupedLinearWeightGradientIn::accumulated, outputs[0]);
    return grouped_linear_product_cost(traffic, required(inputs, GroupedLinearWeightGradientIn::x, name()),
                                       required(inputs, GroupedLinearWeightGradientIn::dy, name()).shape[1].size,
                                       attributes);
  }
  std::optional<std::size_t> alias(std::size_t) const override { return GroupedLinearWeightGradientIn::dweight; }
};

const GroupedLinearInputGradient kGroupedLinearInputGradient;
const GroupedLinearWeightGradient kGroupedLinearWeightGradient;

// (x, weight, start) -> y
class GroupedLinear final : public Op {
 public:
  std::string_view name() const override { return "grouped_linear"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return GroupedLinearAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, GroupedLinearIn::x, name());
    const Type& weight = required(inputs, GroupedLinearIn::weight, name());
    const std::int64_t experts = attributes.as<GroupedLinearAttributes>().experts;
    expect_weight(name(), weight, required(inputs, GroupedLinearIn::start, name()), experts);
    expect(is_floating(x.dtype) && x.shape.size() == 2 && x.dtype == weight.dtype && x.shape[1] == weight.shape[1],
           name(), text_of("x is ", to_text(x), ", weight ", to_text(weight), "; expected equal columns and dtypes"));
    return {Type{x.dtype, {x.shape[0], weight.shape[0].size / experts}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return grouped_linear_product_cost(Op::cost(inputs, outputs, attributes),
                                       required(inputs, GroupedLinearIn::x, name()), outputs[0].shape[1].size,
                                       attributes);
  }
  // Each rank multiplies the rows of its experts. Of the rows that there is room for, experts have on average those of
  // an equal share of the choices.
  void shard(ShardBuilder& builder, const Node& node) const override {
    const Tensor start = builder.input(GroupedLinearIn::start);
    const ExpertPartAttributes* const part = part_of_order(start);
    if (part == nullptr || builder.division(GroupedLinearIn::x) != kDividedRows ||
        builder.division(GroupedLinearIn::weight) != kDividedRows) {
      return Op::shard(builder, node);
    }
    const Program& program = start.program();
    const Node& order = program.nodes()[static_cast<std::size_t>(start.value().producer)];
    const auto choices =
        static_cast<double>(program.value(order.outputs[ExpertOrderPartOut::position]).type.elements());
    GroupedLinearAttributes own = node.attributes.as<GroupedLinearAttributes>();
    own.experts = part->own;
    own.share *= choices / builder.ranks() / static_cast<double>(builder.input(GroupedLinearIn::x).type().rows());
    shard_alike(builder, own, kDividedRows);
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy) return;
    const Tensor start = builder.input(GroupedLinearIn::start);
    Program& program = builder.program();
    if (builder.needs(GroupedLinearIn::weight)) {
      std::vector<Tensor> inputs{dy, builder.input(GroupedLinearIn::x), start,
                                 builder.accumulator(GroupedLinearIn::weight)};
      if (const Tensor flag = builder.accumulated(GroupedLinearIn::weight)) inputs.push_back(flag);
      builder.set_accumulator(GroupedLinearIn::weight,
                              program.append(kGroupedLinearWeightGradient, node.attributes, inputs)[0]);
    }
    if (builder.needs(GroupedLinearIn::x)) {
      builder.add(GroupedLinearIn::x, program.append1(kGroupedLinearInputGradient, node.attributes,
                                                      {dy, builder.input(GroupedLinearIn::weight), start}));
    }
  }
};

const GroupedLinear kGroupedLinear;

}  // namespace

Tensor grouped_linear(Tensor x, Tensor weight, Tensor start, const GroupedLinearAttributes& attributes) {
  return x.program().append1(kGroupedLinear, attributes, {x, weight, start});
}

void register_grouped_linear(OpRegistry& registry) {
  registry.add(kGroupedLinear);
  registry.add(kGroupedLinearInputGradient);
  registry.add(kGroupedLinearWeightGradient);
}

}  // namespace hone
