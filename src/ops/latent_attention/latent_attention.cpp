#include "ops/latent_attention/latent_attention.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// (query, cache, block_table, cu_seqlens, starts) -> latents
class LatentAttention final : public Op {
 public:
  std::string_view name() const override { return "latent_attention"; }
  OpCategory category() const override { return OpCategory::kAttention; }
  Attributes default_attributes() const override { return LatentAttentionAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& query = required(inputs, LatentAttentionIn::query, name());
    const Type& cache = required(inputs, LatentAttentionIn::cache, name());
    const auto& a = attributes.as<LatentAttentionAttributes>();
    expect_sizes(name(), {a.heads, a.rank});
    expect(cache.shape.size() == 3 && is_floating(cache.dtype) && a.rank > 0 && a.rank < cache.shape[2].size, name(),
           text_of("cache is ", to_text(cache), ", rank ", a.rank,
                   "; expected [num_blocks, block_size, rank + rope_dim] of a floating type"));
    expect(a.heads > 0 && query.dtype == cache.dtype && query.shape.size() == 2 &&
               query.shape[1].size == a.heads * cache.shape[2].size,
           name(),
           text_of("query is ", to_text(query), "; expected [rows, ", a.heads, " x ", cache.shape[2].size, "] of the ",
                   name_of(cache.dtype), " of the cache"));
    const Type& table = required(inputs, LatentAttentionIn::block_table, name());
    const Type& cu_seqlens = required(inputs, LatentAttentionIn::cu_seqlens, name());
    const Type& starts = required(inputs, LatentAttentionIn::starts, name());
    const bool of_ids = table.dtype == DType::kI32 && cu_seqlens.dtype == DType::kI32 && starts.dtype == DType::kI32;
    expect(of_ids && table.shape.size() == 2 && starts.shape == Shape{table.shape[0]} &&
               cu_seqlens.shape == Shape{Dim(table.shape[0].size + 1)},
           name(),
           text_of("block_table is ", to_text(table), ", cu_seqlens ", to_text(cu_seqlens), ", starts ",
                   to_text(starts), "; expected i32 [sequences, max_blocks], [sequences + 1] and [sequences]"));
    return {Type{query.dtype, {query.shape[0], a.heads * a.rank}}};
  }
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (builder.division(LatentAttentionIn::query) != kDividedColumns) return Op::shard(builder, node);
    LatentAttentionAttributes own = node.attributes.as<LatentAttentionAttributes>();
    own.heads /= builder.ranks();
    shard_alike(builder, own, kDividedColumns);
  }
  // Upper bound: every row sees all positions that a block table has room for, and every table is full.
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<LatentAttentionAttributes>();
    const Type& query = required(inputs, LatentAttentionIn::query, name());
    const Type& cache = required(inputs, LatentAttentionIn::cache, name());
    const Type& table = required(inputs, LatentAttentionIn::block_table, name());
    const auto positions = static_cast<double>(table.shape[1].size * cache.shape[1].size);
    const auto width = static_cast<double>(cache.shape[2].size);
    Cost cost;
    cost.flops = 2.0 * static_cast<double>(query.rows() * a.heads) * positions * (width + static_cast<double>(a.rank));
    cost.bytes_read = static_cast<double>(query.bytes() + table.bytes()) +
                      static_cast<double>(table.rows()) * positions * width * static_cast<double>(size_of(cache.dtype));
    cost.bytes_written = static_cast<double>(outputs[0].bytes());
    return cost;
  }
};

const LatentAttention kLatentAttention;

}  // namespace

Tensor latent_attention(Tensor query, Tensor cache, Tensor block_table, Tensor cu_seqlens, Tensor starts,
                        const LatentAttentionAttributes& attributes) {
  return query.program().append1(kLatentAttention, attributes, {query, cache, block_table, cu_seqlens, starts});
}

void register_latent_attention(OpRegistry& registry) { registry.add(kLatentAttention); }

}  // namespace hone
