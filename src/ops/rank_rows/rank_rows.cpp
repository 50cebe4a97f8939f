#include "ops/rank_rows/rank_rows.h"

#include "core/error.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "program/context_builder.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"

namespace hone {
namespace {

// Returns the type of a rank's rows of a whole value.
Type rows_of(const Type& whole, std::int64_t ranks, std::string_view name) {
  expect_sizes(name, {ranks});
  expect(!whole.shape.empty() && whole.shape[0] == Dim(whole.rows(), Count::tokens) && ranks > 0, name,
         text_of("x is ", to_text(whole), ", ranks ", ranks, "; expected rows of tokens and at least one rank"));
  Type rows = whole;
  rows.shape[0] = Dim((whole.rows() + ranks - 1) / ranks);
  return rows;
}

// Appends a copy of the node for the tokens of a rank of a context group, of which its output is a block.
void divide_block(ContextBuilder& builder, const Node& node) {
  std::vector<Tensor> inputs;
  inputs.reserve(node.inputs.size());
  for (std::size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(builder.input(i));
  builder.set_block(0, builder.append(node.attributes, inputs)[0]);
}

Tensor gathered(Tensor rows, const Type& whole, std::int64_t ranks) {
  return gather_rank_rows(rows, {.ranks = ranks, .capacity = whole.rows(), .entered = false});
}

// (x, bias or none) -> y
class RankRowsSum final : public Op {
 public:
  std::string_view name() const override { return "rank_rows_sum"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  Attributes default_attributes() const override { return RankRowsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, RankRowsSumIn::x, name());
    expect(is_floating(x.dtype), name(), text_of("x is ", to_text(x), "; expected a floating type"));
    if (const Type* bias = given(inputs, RankRowsSumIn::bias)) {
      expect(x.shape.size() == 2 && *bias == Type{x.dtype, {x.shape[1]}}, name(),
             text_of("bias is ", to_text(*bias), ", x ", to_text(x), "; expected [n] and [rows, n]"));
    }
    return {rows_of(x, attributes.as<RankRowsAttributes>().ranks, name())};
  }
  void divide_tokens(ContextBuilder& builder, const Node& node) const override { divide_block(builder, node); }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy) return;
    if (builder.needs(RankRowsSumIn::bias)) {
      builder.set_accumulator(RankRowsSumIn::bias, column_sum(dy, builder.accumulator(RankRowsSumIn::bias)));
    }
    if (!builder.needs(RankRowsSumIn::x)) return;
    const std::int64_t ranks = node.attributes.as<RankRowsAttributes>().ranks;
    builder.add(RankRowsSumIn::x, gathered(dy, builder.input(RankRowsSumIn::x).type(), ranks));
  }
};

// (x) -> y
class RankRowsTake final : public Op {
 public:
  std::string_view name() const override { return "rank_rows_take"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return RankRowsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    return {rows_of(required(inputs, 0, name()), attributes.as<RankRowsAttributes>().ranks, name())};
  }
  void divide_tokens(ContextBuilder& builder, const Node& node) const override { divide_block(builder, node); }
  Cost cost(InputTypes, std::span<const Type> outputs, const Attributes&) const override {
    const auto bytes = static_cast<double>(outputs[0].bytes());
    return {.bytes_read = bytes, .bytes_written = bytes};
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(0)) return;
    builder.add(0, gathered(dy, builder.input(0).type(), node.attributes.as<RankRowsAttributes>().ranks));
  }
};

const RankRowsSum kRankRowsSum;
const RankRowsTake kRankRowsTake;

// (x) -> y
class RankRowsGather final : public Op {
 public:
  std::string_view name() const override { return "rank_rows_gather"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  Attributes default_attributes() const override { return RankRowsGatherAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, 0, name());
    const auto& a = attributes.as<RankRowsGatherAttributes>();
    expect_sizes(name(), {a.ranks, a.capacity});
    Type whole = x;
    if (!x.shape.empty()) whole.shape[0] = Dim(a.capacity, Count::tokens);
    expect(!x.shape.empty() && a.capacity > 0 && rows_of(whole, a.ranks, name()) == x, name(),
           text_of("x is ", to_text(x), ", no rank's rows of ", a.capacity, " of ", a.ranks, " ranks"));
    return {whole};
  }
  void divide_tokens(ContextBuilder& builder, const Node& node) const override {
    auto own = node.attributes.as<RankRowsGatherAttributes>();
    own.capacity = builder.divided({DType::kI32, {Dim(own.capacity, Count::tokens)}}).rows();
    divide_alike(builder, node, own);
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(0)) return;
    const auto& a = node.attributes.as<RankRowsGatherAttributes>();
    builder.add(0, a.entered ? sum_rank_rows(dy, a.ranks) : take_rank_rows(dy, a.ranks));
  }
};

const RankRowsGather kRankRowsGather;

}  // namespace

Tensor sum_rank_rows(Tensor x, std::int64_t ranks, Tensor bias) {
  return x.program().append1(kRankRowsSum, RankRowsAttributes{.ranks = ranks}, {x, bias});
}

Tensor gather_rank_rows(Tensor x, const RankRowsGatherAttributes& attributes) {
  return x.program().append1(kRankRowsGather, attributes, {x});
}

Tensor take_rank_rows(Tensor x, std::int64_t ranks) {
  return x.program().append1(kRankRowsTake, RankRowsAttributes{.ranks = ranks}, {x});
}

bool gathers_rank_rows(const Op& op) { return &op == &kRankRowsGather; }

void register_rank_rows(OpRegistry& registry) {
  registry.add(kRankRowsSum);
  registry.add(kRankRowsTake);
  registry.add(kRankRowsGather);
}

}  // namespace hone
