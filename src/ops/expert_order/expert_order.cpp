#include "ops/expert_order/expert_order.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "ops/registry.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

void expect_choices(std::string_view name, const Type& expert, std::int64_t experts) {
  expect_sizes(name, {experts});
  expect(expert.dtype == DType::kI32 && expert.shape.size() == 2 && experts > 0 && expert.elements() < (1LL << 31),
         name, text_of("expert is ", to_text(expert), " of ", experts, " experts; expected i32[tokens, top_k]"));
}

// (expert) -> position, start, rows
class ExpertOrderPartOp final : public Op {
 public:
  std::string_view name() const override { return "expert_order_part"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return ExpertPartAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& expert = required(inputs, 0, name());
    const auto& part = attributes.as<ExpertPartAttributes>();
    expect_choices(name(), expert, part.experts);
    expect_sizes(name(), {part.first, part.own});
    expect(part.own > 0 && part.first + part.own <= part.experts, name(),
           text_of("the part has ", part.own, " of ", part.experts, " experts from ", part.first, " on"));
    return {expert, Type{DType::kI32, {part.own + 1}}, Type{DType::kI64, {1}}};
  }
};

const ExpertOrderPartOp kExpertOrderPart;

// (expert) -> position, start
class ExpertOrderOp final : public Op {
 public:
  std::string_view name() const override { return "expert_order"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return ExpertOrderAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& expert = required(inputs, 0, name());
    const std::int64_t experts = attributes.as<ExpertOrderAttributes>().experts;
    expect_choices(name(), expert, experts);
    return {expert, Type{DType::kI32, {experts + 1}}};
  }
  // The experts are divided over the ranks. Each orders the rows that its experts have.
  void shard(ShardBuilder& builder, const Node& node) const override {
    const std::int64_t experts = node.attributes.as<ExpertOrderAttributes>().experts;
    if (builder.division(0) != kWhole || experts % builder.ranks() != 0) return Op::shard(builder, node);
    const Tensor expert = builder.input(0);
    const std::int64_t own = experts / builder.ranks();
    const ExpertOrderPart part =
        expert_order_part(expert, {.experts = experts,
                                   .first = builder.rank() * own,
                                   .own = own,
                                   .count = text_of("own_rows_", expert.program().counts().size())});
    builder.set_output(ExpertOrderOut::position, part.position, kDividedRows);
    builder.set_output(ExpertOrderOut::start, part.start, kDividedRows);
  }
};

const ExpertOrderOp kExpertOrder;

}  // namespace

ExpertOrder expert_order(Tensor expert, const ExpertOrderAttributes& attributes) {
  const std::array<Tensor, 1> inputs{expert};
  const std::vector<Tensor> outputs = expert.program().append(kExpertOrder, attributes, inputs);
  return {outputs[ExpertOrderOut::position], outputs[ExpertOrderOut::start]};
}

ExpertOrderPart expert_order_part(Tensor expert, const ExpertPartAttributes& part) {
  const std::array<Tensor, 1> inputs{expert};
  const std::vector<Tensor> outputs = expert.program().append(kExpertOrderPart, part, inputs);
  const ExpertOrderPart order{outputs[ExpertOrderPartOut::position], outputs[ExpertOrderPartOut::start],
                              outputs[ExpertOrderPartOut::rows]};
  expert.program().count(Count(part.count), rows_of_part(order.position.type(), part).size, order.rows);
  return order;
}

const ExpertPartAttributes* part_of_order(Tensor order) {
  const std::int32_t producer = order.value().producer;
  if (producer < 0) return nullptr;
  const Node& node = order.program().nodes()[static_cast<std::size_t>(producer)];
  return node.op == &kExpertOrderPart ? &node.attributes.as<ExpertPartAttributes>() : nullptr;
}

Dim rows_of_part(const Type& position, const ExpertPartAttributes& part) {
  return {position.shape[0].size * std::min(position.shape[1].size, part.own), Count(part.count)};
}

void register_expert_order(OpRegistry& registry) {
  registry.add(kExpertOrder);
  registry.add(kExpertOrderPart);
}

}  // namespace hone
