#include "ops/attention/attention.h"

#include "core/error.h"
#include "ops/context_attention/context_attention.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// Cost of GEMMs for each query head over `columns` in all, as if all rows were one sequence; the mask leaves out half
// of each.
Cost attention_cost(const Cost& traffic, const Type& qkv, const AttentionAttributes& a, std::int64_t columns) {
  const auto rows = static_cast<double>(qkv.rows());
  Cost cost = traffic;
  cost.flops = rows * (rows + 1) * static_cast<double>(a.heads * columns);
  cost.pair_flops = cost.flops;
  return cost;
}

// (do, qkv, o, lse, cu_seqlens) -> dqkv
class AttentionBackward final : public Op {
 public:
  std::string_view name() const override { return "attention_backward"; }
  OpCategory category() const override { return OpCategory::kAttention; }
  Attributes default_attributes() const override { return AttentionAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<AttentionAttributes>();
    expect_sizes(name(), {a.heads, a.kv_heads, a.head_dim});
    return {required(inputs, AttentionBackwardIn::qkv, name())};
  }
  // Five GEMMs: the scores again, and the gradients of weights, values, queries and keys.
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<AttentionAttributes>();
    return attention_cost(Op::cost(inputs, outputs, attributes), outputs[0], a, 3 * a.head_dim + 2 * a.values());
  }
};

const AttentionBackward kAttentionBackward;

// (qkv, cu_seqlens) -> (o, lse [rows, heads]: log of the sum of exp(score))
class Attention final : public Op {
 public:
  std::string_view name() const override { return "attention"; }
  OpCategory category() const override { return OpCategory::kAttention; }
  Attributes default_attributes() const override { return AttentionAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& qkv = required(inputs, AttentionIn::qkv, name());
    const Type& cu_seqlens = required(inputs, AttentionIn::cu_seqlens, name());
    const auto& a = attributes.as<AttentionAttributes>();
    expect_sizes(name(), {a.heads, a.kv_heads, a.head_dim});
    expect(qkv.shape.size() == 2 && qkv.shape[1].size == (a.heads + 2 * a.kv_heads) * a.head_dim, name(),
           text_of("qkv is ", to_text(qkv), "; it does not fit ", a.heads, " query and ", a.kv_heads,
                   " key heads of head_dim ", a.head_dim));
    expect(a.kv_heads > 0 && a.heads % a.kv_heads == 0, name(),
           text_of(a.heads, " query heads are not a multiple of ", a.kv_heads, " key heads"));
    expect(a.value_dim >= 0 && a.value_dim <= a.head_dim, name(),
           text_of("value_dim is ", a.value_dim, "; expected 0 to head_dim, ", a.head_dim));
    expect(cu_seqlens.dtype == DType::kI32 && cu_seqlens.shape.size() == 1 && cu_seqlens.shape[0].size > 0, name(),
           text_of("cu_seqlens is ", to_text(cu_seqlens), "; expected i32[sequences + 1]"));
    return {Type{qkv.dtype, {qkv.shape[0], a.heads * a.head_dim}},
            Type{accumulator_of(qkv.dtype), {qkv.shape[0], a.heads}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<AttentionAttributes>();
    return attention_cost(Op::cost(inputs, outputs, attributes), required(inputs, AttentionIn::qkv, name()), a,
                          a.head_dim + a.values());
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(AttentionOut::o);
    if (!dy || !builder.needs(AttentionIn::qkv)) return;
    builder.add(AttentionIn::qkv,
                builder.program().append1(kAttentionBackward, node.attributes,
                                          {dy, builder.input(AttentionIn::qkv), builder.output(AttentionOut::o),
                                           builder.output(AttentionOut::lse), builder.input(AttentionIn::cu_seqlens)}));
  }
  // Each rank attends with its query heads, whose key heads it has.
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (builder.division(AttentionIn::qkv) == kWhole) return Op::shard(builder, node);
    AttentionAttributes own = node.attributes.as<AttentionAttributes>();
    own.heads /= builder.ranks();
    own.kv_heads /= builder.ranks();
    shard_alike(builder, own, kDividedColumns);
  }
  // Each rank attends with the queries of its tokens to the keys and values of all tokens.
  void divide_tokens(ContextBuilder& builder, const Node& node) const override {
    builder.set_output(AttentionOut::o, context_attention(builder.input(AttentionIn::qkv), builder.inputs(),
                                                          node.attributes.as<AttentionAttributes>()));
  }
};

const Attention kAttention;

}  // namespace

Tensor attention(Tensor qkv, Tensor cu_seqlens, const AttentionAttributes& attributes) {
  const std::vector<Tensor> inputs{qkv, cu_seqlens};
  return qkv.program().append(kAttention, attributes, inputs)[0];
}

void register_attention(OpRegistry& registry) {
  registry.add(kAttention);
  registry.add(kAttentionBackward);
}

}  // namespace hone
