#include "ops/context_attention/context_attention.h"

#include "core/error.h"
#include "ops/context_rows/context_rows.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"

namespace hone {
namespace {

ContextColumns key_columns(const AttentionAttributes& a) { return {.first = a.heads * a.head_dim}; }

// GEMMs for each query head over `columns` in all, as if all tokens were one sequence, of which the rank has an equal
// share; the mask leaves out half of each.
Cost context_attention_cost(const Cost& traffic, const Type& qkv, const Type& keys, const AttentionAttributes& a,
                            std::int64_t columns) {
  Cost cost = traffic;
  cost.flops =
      static_cast<double>(qkv.rows()) * static_cast<double>(keys.rows() + 1) * static_cast<double>(a.heads * columns);
  cost.pair_flops = cost.flops;
  return cost;
}

// (qkv, keys, piece_bounds, piece_starts, piece_keys, document_pieces, cu_seqlens, grad_o, o, lse) -> (dqkv, of which
// only the columns of queries are defined; dkeys)
class ContextAttentionBackward final : public Op {
 public:
  std::string_view name() const override { return "context_attention_backward"; }
  OpCategory category() const override { return OpCategory::kAttention; }
  Attributes default_attributes() const override { return AttentionAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<AttentionAttributes>();
    expect_sizes(name(), {a.heads, a.kv_heads, a.head_dim});
    return {required(inputs, ContextAttentionBackwardIn::qkv, name()),
            required(inputs, ContextAttentionBackwardIn::keys, name())};
  }
  // Five GEMMs: the scores again, and the gradients of weights, values, queries and keys.
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<AttentionAttributes>();
    return context_attention_cost(Op::cost(inputs, outputs, attributes), outputs[ContextAttentionBackwardOut::qkv],
                                  outputs[ContextAttentionBackwardOut::keys], a, 3 * a.head_dim + 2 * a.values());
  }
};

const ContextAttentionBackward kContextAttentionBackward;

// (qkv, keys, rows, piece_bounds, piece_starts, piece_keys, document_pieces, cu_seqlens) -> (o, lse [capacity, heads])
class ContextAttention final : public Op {
 public:
  std::string_view name() const override { return "context_attention"; }
  OpCategory category() const override { return OpCategory::kAttention; }
  Attributes default_attributes() const override { return AttentionAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    using In = ContextAttentionIn;
    const Type& qkv = required(inputs, In::qkv, name());
    const Type& keys = required(inputs, In::keys, name());
    const auto& a = attributes.as<AttentionAttributes>();
    expect_sizes(name(), {a.heads, a.kv_heads, a.head_dim});
    expect(a.kv_heads > 0 && a.heads % a.kv_heads == 0 && a.value_dim >= 0 && a.value_dim <= a.head_dim, name(),
           text_of(a.heads, " query heads, ", a.kv_heads, " key heads of head_dim ", a.head_dim, ", value_dim ",
                   a.value_dim, " do not fit"));
    expect(qkv.shape.size() == 2 && qkv.shape[1].size == (a.heads + 2 * a.kv_heads) * a.head_dim &&
               keys.dtype == qkv.dtype && keys.shape.size() == 2 && keys.shape[1].size == 2 * a.kv_heads * a.head_dim,
           name(),
           text_of("qkv is ", to_text(qkv), ", keys ", to_text(keys), "; they do not fit ", a.heads, " query and ",
                   a.kv_heads, " key heads of head_dim ", a.head_dim));
    for (const std::size_t i :
         {In::rows, In::piece_bounds, In::piece_starts, In::piece_keys, In::document_pieces, In::cu_seqlens}) {
      const Type& ids = required(inputs, i, name());
      expect(ids.dtype == DType::kI32 && ids.shape.size() == 1, name(),
             text_of("input ", i, " is ", to_text(ids), "; expected one dimension of i32"));
    }
    const auto rows_of = [&](std::size_t i) { return required(inputs, i, name()).rows(); };
    expect(rows_of(In::piece_starts) == rows_of(In::piece_keys) &&
               rows_of(In::piece_bounds) == rows_of(In::piece_starts) + 1 &&
               rows_of(In::document_pieces) == rows_of(In::cu_seqlens),
           name(), "the numbers of pieces or documents differ");
    return {Type{qkv.dtype, {qkv.shape[0], a.heads * a.head_dim}},
            Type{accumulator_of(qkv.dtype), {qkv.shape[0], a.heads}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<AttentionAttributes>();
    return context_attention_cost(Op::cost(inputs, outputs, attributes),
                                  required(inputs, ContextAttentionIn::qkv, name()),
                                  required(inputs, ContextAttentionIn::keys, name()), a, a.head_dim + a.values());
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    using In = ContextAttentionIn;
    const Tensor dy = builder.output_gradient(AttentionOut::o);
    if (!dy || !builder.needs(In::qkv)) return;
    const auto& a = node.attributes.as<AttentionAttributes>();
    const Tensor qkv = builder.input(In::qkv);
    const Tensor rows = builder.input(In::rows);
    const Tensor keys = context_gather(qkv, rows, key_columns(a));
    const std::vector<Tensor> operands{qkv,
                                       keys,
                                       builder.input(In::piece_bounds),
                                       builder.input(In::piece_starts),
                                       builder.input(In::piece_keys),
                                       builder.input(In::document_pieces),
                                       builder.input(In::cu_seqlens),
                                       dy,
                                       builder.output(AttentionOut::o),
                                       builder.output(AttentionOut::lse)};
    const std::vector<Tensor> gradients = builder.program().append(kContextAttentionBackward, a, operands);
    builder.add(In::qkv, context_scatter(gradients[ContextAttentionBackwardOut::keys],
                                         gradients[ContextAttentionBackwardOut::qkv], rows, key_columns(a)));
  }
};

const ContextAttention kContextAttention;

}  // namespace

Tensor context_attention(Tensor qkv, const ContextInputs& inputs, const AttentionAttributes& attributes) {
  const std::vector<Tensor> operands{qkv,
                                     context_gather(qkv, inputs.rows, key_columns(attributes)),
                                     inputs.rows,
                                     inputs.piece_bounds,
                                     inputs.piece_starts,
                                     inputs.piece_keys,
                                     inputs.document_pieces,
                                     inputs.cu_seqlens};
  return qkv.program().append(kContextAttention, attributes, operands)[0];
}

void register_context_attention(OpRegistry& registry) {
  registry.add(kContextAttention);
  registry.add(kContextAttentionBackward);
}

}  // namespace hone
