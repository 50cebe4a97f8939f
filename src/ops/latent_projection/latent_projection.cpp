#include "ops/latent_projection/latent_projection.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// The rank of the latent rows, checked with everything else that both operations have in common.
std::int64_t checked_rank(std::string_view op, InputTypes inputs, const LatentHeadsAttributes& a) {
  const Type& x = required(inputs, LatentProjectionIn::x, op);
  const Type& up = required(inputs, LatentProjectionIn::up, op);
  expect_sizes(op, {a.heads, a.nope_dim, a.rope_dim, a.value_dim});
  expect(a.heads > 0 && a.nope_dim > 0 && a.rope_dim > 0 && a.value_dim > 0, op,
         text_of(a.heads, " heads of nope_dim ", a.nope_dim, ", rope_dim ", a.rope_dim, " and value_dim ", a.value_dim,
                 "; all must be positive"));
  expect(is_floating(x.dtype) && up.dtype == x.dtype && up.shape.size() == 2 && up.shape[0].size == a.kv_width(), op,
         text_of("x is ", to_text(x), ", up ", to_text(up), "; expected one floating type and up [", a.kv_width(),
                 ", rank]"));
  return up.shape[1].size;
}

void expect_width(std::string_view op, const Type& x, std::int64_t width) {
  expect(x.shape.size() == 2 && x.shape[1].size == width, op,
         text_of("x is ", to_text(x), "; expected [rows, ", width, "]"));
}

// Twice the products of each row; `up` is read once.
Cost projection_cost(const Cost& traffic, const Type& x, const LatentHeadsAttributes& a, std::int64_t each) {
  Cost cost = traffic;
  cost.flops = 2.0 * static_cast<double>(x.rows()) * static_cast<double>(a.heads * each);
  return cost;
}

// Appends what a rank computes that has the heads of its columns of x and its rows of `up`.
void shard_projection(ShardBuilder& builder, const Op& op, const Node& node) {
  const bool by_heads = builder.division(LatentProjectionIn::x) == kDividedColumns &&
                        builder.division(LatentProjectionIn::up) == kDividedRows;
  if (!by_heads) return op.Op::shard(builder, node);
  LatentHeadsAttributes own = node.attributes.as<LatentHeadsAttributes>();
  own.heads /= builder.ranks();
  shard_alike(builder, own, kDividedColumns);
}

// (query, up) -> absorbed queries
class LatentProjectionQueries final : public Op {
 public:
  std::string_view name() const override { return "latent_projection_queries"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  Attributes default_attributes() const override { return LatentHeadsAttributes{}; }
  void shard(ShardBuilder& builder, const Node& node) const override { shard_projection(builder, *this, node); }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<LatentHeadsAttributes>();
    const std::int64_t rank = checked_rank(name(), inputs, a);
    const Type& query = required(inputs, LatentProjectionIn::x, name());
    expect_width(name(), query, a.query_width());
    return {Type{query.dtype, {query.shape[0], a.heads * (rank + a.rope_dim)}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<LatentHeadsAttributes>();
    return projection_cost(Op::cost(inputs, outputs, attributes), outputs[0], a,
                           a.nope_dim * required(inputs, LatentProjectionIn::up, name()).shape[1].size);
  }
};

// (latents, up) -> values
class LatentProjectionValues final : public Op {
 public:
  std::string_view name() const override { return "latent_projection_values"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  Attributes default_attributes() const override { return LatentHeadsAttributes{}; }
  void shard(ShardBuilder& builder, const Node& node) const override { shard_projection(builder, *this, node); }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<LatentHeadsAttributes>();
    const std::int64_t rank = checked_rank(name(), inputs, a);
    const Type& latents = required(inputs, LatentProjectionIn::x, name());
    expect_width(name(), latents, a.heads * rank);
    return {Type{latents.dtype, {latents.shape[0], a.heads * a.value_dim}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<LatentHeadsAttributes>();
    return projection_cost(Op::cost(inputs, outputs, attributes), outputs[0], a,
                           a.value_dim * required(inputs, LatentProjectionIn::up, name()).shape[1].size);
  }
};

const LatentProjectionQueries kQueries;
const LatentProjectionValues kValues;

}  // namespace

Tensor latent_projection_queries(Tensor query, Tensor up, const LatentHeadsAttributes& attributes) {
  return query.program().append1(kQueries, attributes, {query, up});
}

Tensor latent_projection_values(Tensor latents, Tensor up, const LatentHeadsAttributes& attributes) {
  return latents.program().append1(kValues, attributes, {latents, up});
}

void register_latent_projection(OpRegistry& registry) {
  registry.add(kQueries);
  registry.add(kValues);
}

}  // namespace hone
