#include "ops/router_balance/router_balance.h"

#include "core/error.h"
#include "ops/context_rows/context_rows.h"
#include "ops/registry.h"
#include "ops/router/router.h"
#include "program/context_builder.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

bool is_wide(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

// The number of segments that an optional cu_seqlens describes.
std::int64_t segment_count(std::string_view op, InputTypes inputs, std::size_t index) {
  const Type* type = given(inputs, index);
  if (type == nullptr) return 1;
  expect(type->dtype == DType::kI32 && type->shape.size() == 1 && type->shape[0].size > 0, op,
         text_of("cu_seqlens is ", to_text(*type), "; expected i32[segments + 1]"));
  return type->shape[0].size - 1;
}

void expect_balanced_logits(std::string_view op, const Type& logits) {
  expect(is_wide(logits.dtype) && logits.shape.size() == 2 && logits.shape[1].size > 0 &&
             logits.shape[1].size <= kMostExperts,
         op, text_of("logits are ", to_text(logits), "; expected f32[tokens, experts]"));
}

void expect_sums(std::string_view op, const Type& sums, std::int64_t segments) {
  expect(is_wide(sums.dtype) && sums.shape.size() == 2 && (sums.rows() == segments || sums.rows() == 1) &&
             sums.shape[1].size % 2 == 0 && sums.shape[1].size > 0,
         op, text_of("sums are ", to_text(sums), " of ", segments, " segments; expected f32[segments, 2 x experts]"));
}

// (dsums, logits, cu_seqlens or none) -> dlogits
class RouterSumsBackward final : public Op {
 public:
  std::string_view name() const override { return "router_sums_backward"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  Attributes default_attributes() const override { return RouterSumsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& dsums = required(inputs, RouterSumsBackwardIn::dsums, name());
    const Type& logits = required(inputs, RouterSumsBackwardIn::logits, name());
    expect_balanced_logits(name(), logits);
    expect(dsums == Type{logits.dtype,
                         {segment_count(name(), inputs, RouterSumsBackwardIn::cu_seqlens), 2 * logits.shape[1].size}},
           name(), text_of("logits are ", to_text(logits), ", dsums ", to_text(dsums)));
    return {logits};
  }
};

// (dterm, sums, cu_seqlens or none) -> dsums
class RouterBalanceBackward final : public Op {
 public:
  std::string_view name() const override { return "router_balance_backward"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  Attributes default_attributes() const override { return RouterBalanceAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& dterm = required(inputs, RouterBalanceBackwardIn::dterm, name());
    const Type& sums = required(inputs, RouterBalanceBackwardIn::sums, name());
    expect_sums(name(), sums, segment_count(name(), inputs, RouterBalanceBackwardIn::cu_seqlens));
    expect(dterm.dtype == sums.dtype && dterm.shape.size() == 1, name(),
           text_of("sums are ", to_text(sums), ", dterm ", to_text(dterm), "; expected [tokens]"));
    return {sums};
  }
};

const RouterSumsBackward kSumsBackward;
const RouterBalanceBackward kBalanceBackward;

// (logits, expert, cu_seqlens or none) -> sums
class RouterSums final : public Op {
 public:
  std::string_view name() const override { return "router_sums"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  Attributes default_attributes() const override { return RouterSumsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& logits = required(inputs, RouterSumsIn::logits, name());
    const Type& expert = required(inputs, RouterSumsIn::expert, name());
    expect_balanced_logits(name(), logits);
    expect(expert.dtype == DType::kI32 && expert.shape.size() == 2 && expert.shape[0] == logits.shape[0], name(),
           text_of("logits are ", to_text(logits), ", expert ", to_text(expert), "; expected i32[tokens, top_k]"));
    return {Type{logits.dtype, {segment_count(name(), inputs, RouterSumsIn::cu_seqlens), 2 * logits.shape[1].size}}};
  }
  // Each rank has the sums over its tokens of a segment, which are then added.
  void divide_tokens(ContextBuilder& builder, const Node& node) const override {
    const bool has_documents = static_cast<bool>(builder.input(RouterSumsIn::cu_seqlens));
    const std::vector<Tensor> operands{builder.input(RouterSumsIn::logits), builder.input(RouterSumsIn::expert),
                                       has_documents ? builder.document_bounds() : Tensor()};
    builder.set_output(0, context_sum(builder.append(node.attributes, operands)[0]));
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dsums = builder.output_gradient(0);
    if (!dsums || !builder.needs(RouterSumsIn::logits)) return;
    builder.add(RouterSumsIn::logits, builder.program().append1(kSumsBackward, node.attributes,
                                                                {dsums, builder.input(RouterSumsIn::logits),
                                                                 builder.input(RouterSumsIn::cu_seqlens)}));
  }
};

// (sums, tokens, cu_seqlens or none) -> term
class RouterBalance final : public Op {
 public:
  std::string_view name() const override { return "router_balance"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  Attributes default_attributes() const override { return RouterBalanceAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& sums = required(inputs, RouterBalanceIn::sums, name());
    const Type& tokens = required(inputs, RouterBalanceIn::tokens, name());
    expect_sums(name(), sums, segment_count(name(), inputs, RouterBalanceIn::cu_seqlens));
    expect(tokens.dtype == DType::kI32 && tokens.shape.size() == 1, name(),
           text_of("tokens are ", to_text(tokens), "; expected i32[tokens]"));
    const std::int64_t layers = attributes.as<RouterBalanceAttributes>().layers;
    expect_sizes(name(), {layers});
    expect(layers > 0, name(), text_of("layers is ", layers, "; expected at least 1"));
    return {Type{sums.dtype, tokens.shape}};
  }
  // Each rank computes the loss of all segments and has the terms of its tokens.
  void divide_tokens(ContextBuilder& builder, const Node& node) const override {
    const ContextInputs& context = builder.inputs();
    const std::vector<Tensor> operands{builder.input(RouterBalanceIn::sums), context.rows, context.cu_seqlens};
    builder.set_output(0, context_take(builder.append(node.attributes, operands)[0], context.tokens));
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dterm = builder.output_gradient(0);
    if (!dterm || !builder.needs(RouterBalanceIn::sums)) return;
    builder.add(RouterBalanceIn::sums, builder.program().append1(kBalanceBackward, node.attributes,
                                                                 {dterm, builder.input(RouterBalanceIn::sums),
                                                                  builder.input(RouterBalanceIn::cu_seqlens)}));
  }
};

const RouterSums kSums;
const RouterBalance kBalance;

}  // namespace

Tensor router_sums(Tensor logits, Tensor expert, Tensor cu_seqlens, const RouterSumsAttributes& attributes) {
  return logits.program().append1(kSums, attributes, {logits, expert, cu_seqlens});
}

Tensor router_balance(Tensor sums, Tensor tokens, Tensor cu_seqlens, const RouterBalanceAttributes& attributes) {
  return sums.program().append1(kBalance, attributes, {sums, tokens, cu_seqlens});
}

void register_router_balance(OpRegistry& registry) {
  registry.add(kSums);
  registry.add(kSumsBackward);
  registry.add(kBalance);
  registry.add(kBalanceBackward);
}

}  // namespace hone
