#include "ops/latent_heads/latent_heads.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

void expect_heads(std::string_view op, const LatentHeadsAttributes& a) {
  expect_sizes(op, {a.heads, a.nope_dim, a.rope_dim, a.value_dim});
  expect(a.heads > 0 && a.nope_dim > 0 && a.rope_dim > 0 && a.value_dim > 0, op,
         text_of(a.heads, " heads of nope_dim ", a.nope_dim, ", rope_dim ", a.rope_dim, " and value_dim ", a.value_dim,
                 "; all must be positive"));
  expect(a.value_dim <= a.head_dim(), op,
         text_of("value_dim ", a.value_dim, " is more than head_dim ", a.head_dim(), " = nope_dim ", a.nope_dim,
                 " + rope_dim ", a.rope_dim, "; values are padded to the length of keys, never cut"));
}

// (dqkv) -> (dquery, dkv, drope_key)
class LatentHeadsBackward final : public Op {
 public:
  std::string_view name() const override { return "latent_heads_backward"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return LatentHeadsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& dqkv = required(inputs, 0, name());
    const auto& a = attributes.as<LatentHeadsAttributes>();
    expect_heads(name(), a);
    expect(is_floating(dqkv.dtype) && dqkv.shape.size() == 2 && dqkv.shape[1].size == 3 * a.query_width(), name(),
           text_of("dqkv is ", to_text(dqkv), "; expected [rows, ", 3 * a.query_width(), "] of a floating type"));
    const Dim rows = dqkv.shape[0];
    return {Type{dqkv.dtype, {rows, a.query_width()}}, Type{dqkv.dtype, {rows, a.kv_width()}},
            Type{dqkv.dtype, {rows, a.rope_dim}}};
  }
  // The gradient of the values' padding is not read.
  Cost cost(InputTypes, std::span<const Type> outputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<LatentHeadsAttributes>();
    const Type& drope_key = outputs[LatentHeadsBackwardOut::drope_key];
    const auto element = static_cast<double>(size_of(drope_key.dtype));
    const auto rows = static_cast<double>(drope_key.rows());
    const auto summed = rows * static_cast<double>(a.heads * a.rope_dim);
    const double copied = rows * static_cast<double>(a.query_width() + a.kv_width());
    return {.flops = summed,
            .bytes_read = (copied + summed) * element,
            .bytes_written = (copied + rows * static_cast<double>(a.rope_dim)) * element};
  }
};

const LatentHeadsBackward kLatentHeadsBackward;

// (query, kv, rope_key) -> qkv
class LatentHeadsForward final : public Op {
 public:
  std::string_view name() const override { return "latent_heads"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return LatentHeadsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& query = required(inputs, LatentHeadsIn::query, name());
    const Type& kv = required(inputs, LatentHeadsIn::kv, name());
    const Type& rope_key = required(inputs, LatentHeadsIn::rope_key, name());
    const auto& a = attributes.as<LatentHeadsAttributes>();
    expect_heads(name(), a);
    const auto is = [&](const Type& type, std::int64_t width) {
      return type.dtype == query.dtype && type.shape.size() == 2 && type.shape[0] == query.shape[0] &&
             type.shape[1].size == width;
    };
    expect(is_floating(query.dtype) && is(query, a.query_width()) && is(kv, a.kv_width()) && is(rope_key, a.rope_dim),
           name(),
           text_of("query is ", to_text(query), ", kv ", to_text(kv), ", rope_key ", to_text(rope_key),
                   "; expected [rows, ", a.query_width(), "], [rows, ", a.kv_width(), "] and [rows, ", a.rope_dim,
                   "] of one floating type"));
    return {Type{query.dtype, {query.shape[0], 3 * a.query_width()}}};
  }
  void shard(ShardBuilder& builder, const Node& node) const override {
    const bool by_heads = builder.division(LatentHeadsIn::query) == kDividedColumns &&
                          builder.division(LatentHeadsIn::kv) == kDividedColumns &&
                          builder.division(LatentHeadsIn::rope_key) == kWhole;
    if (!by_heads) return Op::shard(builder, node);
    LatentHeadsAttributes own = node.attributes.as<LatentHeadsAttributes>();
    own.heads /= builder.ranks();
    builder.set_output(0,
                       latent_heads(builder.input(LatentHeadsIn::query), builder.input(LatentHeadsIn::kv),
                                    builder.entered(LatentHeadsIn::rope_key), own),
                       kDividedColumns);
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dqkv = builder.output_gradient(0);
    if (!dqkv) return;
    const std::vector<Tensor> inputs{dqkv};
    const std::vector<Tensor> outputs = builder.program().append(kLatentHeadsBackward, node.attributes, inputs);
    if (builder.needs(LatentHeadsIn::query)) builder.add(LatentHeadsIn::query, outputs[LatentHeadsBackwardOut::dquery]);
    if (builder.needs(LatentHeadsIn::kv)) builder.add(LatentHeadsIn::kv, outputs[LatentHeadsBackwardOut::dkv]);
    if (builder.needs(LatentHeadsIn::rope_key)) {
      builder.add(LatentHeadsIn::rope_key, outputs[LatentHeadsBackwardOut::drope_key]);
    }
  }
};

const LatentHeadsForward kLatentHeadsForward;

}  // namespace

Tensor latent_heads(Tensor query, Tensor kv, Tensor rope_key, const LatentHeadsAttributes& attributes) {
  return query.program().append1(kLatentHeadsForward, attributes, {query, kv, rope_key});
}

void register_latent_heads(OpRegistry& registry) {
  registry.add(kLatentHeadsForward);
  registry.add(kLatentHeadsBackward);
}

}  // namespace hone
