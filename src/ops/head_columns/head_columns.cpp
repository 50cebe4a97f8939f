#include "ops/head_columns/head_columns.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

void expect_columns(std::string_view op, const Type& x, const HeadColumnsAttributes& a, std::int64_t width) {
  expect_sizes(op, {a.heads, a.head_dim, a.columns, a.first});
  expect(a.heads > 0 && a.columns > 0 && a.first >= 0 && a.first + a.columns <= a.head_dim, op,
         text_of(a.columns, " columns from column ", a.first, " of ", a.heads, " heads of head_dim ", a.head_dim,
                 "; expected 1 to head_dim columns of 1 head or more"));
  expect(is_floating(x.dtype) && x.shape.size() == 2 && x.shape[1].size == a.heads * width, op,
         text_of("x is ", to_text(x), "; expected [rows, ", a.heads * width, "] of a floating type"));
}

// (dy) -> dx
class HeadColumnsBackward final : public Op {
 public:
  std::string_view name() const override { return "head_columns_backward"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return HeadColumnsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& dy = required(inputs, 0, name());
    const auto& a = attributes.as<HeadColumnsAttributes>();
    expect_columns(name(), dy, a, a.columns);
    return {Type{dy.dtype, {dy.shape[0], a.heads * a.head_dim}}};
  }
};

const HeadColumnsBackward kHeadColumnsBackward;

// (x) -> y
class HeadColumns final : public Op {
 public:
  std::string_view name() const override { return "head_columns"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return HeadColumnsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, 0, name());
    const auto& a = attributes.as<HeadColumnsAttributes>();
    expect_columns(name(), x, a, a.head_dim);
    return {Type{x.dtype, {x.shape[0], a.heads * a.columns}}};
  }
  void shard(ShardBuilder& builder, const Node& node) const override {
    HeadColumnsAttributes own = node.attributes.as<HeadColumnsAttributes>();
    if (builder.division(0) != kDividedColumns || own.heads % builder.ranks() != 0) {
      if (!shard_rows(builder, node)) Op::shard(builder, node);
      return;
    }
    own.heads /= builder.ranks();
    shard_alike(builder, own, kDividedColumns);
  }
  // Only the columns that are kept are read.
  Cost cost(InputTypes, std::span<const Type> outputs, const Attributes&) const override {
    const auto bytes = static_cast<double>(outputs[0].bytes());
    return {.bytes_read = bytes, .bytes_written = bytes};
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (dy && builder.needs(0)) builder.add(0, builder.program().append1(kHeadColumnsBackward, node.attributes, {dy}));
  }
};

const HeadColumns kHeadColumns;

}  // namespace

Tensor head_columns(Tensor x, const HeadColumnsAttributes& attributes) {
  return x.program().append1(kHeadColumns, attributes, {x});
}

void register_head_columns(OpRegistry& registry) {
  registry.add(kHeadColumns);
  registry.add(kHeadColumnsBackward);
}

}  // namespace hone
