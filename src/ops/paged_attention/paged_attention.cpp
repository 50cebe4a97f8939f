#include "ops/paged_attention/paged_attention.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/kernel.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// (qkv, k_cache, v_cache, block_table, cu_seqlens, starts) -> (o, lse [rows, heads])
class PagedAttention final : public Op {
 public:
  std::string_view name() const override { return "paged_attention"; }
  OpCategory category() const override { return OpCategory::kAttention; }
  Attributes default_attributes() const override { return PagedAttentionAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& qkv = required(inputs, PagedAttentionIn::qkv, name());
    const auto& a = attributes.as<PagedAttentionAttributes>();
    expect_sizes(name(), {a.heads, a.kv_heads, a.head_dim});
    expect(qkv.shape.size() == 2 && (qkv.shape[1].size == (a.heads + 2 * a.kv_heads) * a.head_dim ||
                                     qkv.shape[1].size == a.heads * a.head_dim),
           name(),
           text_of("qkv is ", to_text(qkv), "; it does not fit ", a.heads, " query and ", a.kv_heads,
                   " key heads of head_dim ", a.head_dim));
    expect(a.kv_heads > 0 && a.heads % a.kv_heads == 0, name(),
           text_of(a.heads, " query heads are not a multiple of ", a.kv_heads, " key heads"));
    expect(a.value_dim >= 0 && a.value_dim <= a.head_dim, name(),
           text_of("value_dim is ", a.value_dim, "; expected 0 to head_dim, ", a.head_dim));
    expect_pages(inputs, qkv, a);
    return {Type{qkv.dtype, {qkv.shape[0], a.heads * a.head_dim}},
            Type{accumulator_of(qkv.dtype), {qkv.shape[0], a.heads}}};
  }
  // Upper bound: every row sees all positions that a block table has room for, and every table is full.
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<PagedAttentionAttributes>();
    const Type& tables = required(inputs, PagedAttentionIn::block_table, name());
    const auto positions = static_cast<double>(tables.shape[1].size * a.block_size);
    const auto element = static_cast<double>(size_of(required(inputs, PagedAttentionIn::k_cache, name()).dtype));
    const double scales = inputs.size() > PagedAttentionIn::k_scales ? 1.0 / static_cast<double>(a.head_dim) : 0;
    Cost cost;
    cost.flops = 4.0 * static_cast<double>(outputs[PagedAttentionOut::o].elements()) * positions;
    cost.bytes_read =
        static_cast<double>(outputs[PagedAttentionOut::o].bytes() + tables.bytes()) +
        2.0 * static_cast<double>(tables.rows() * a.kv_heads * a.head_dim) * positions * (element + scales);
    cost.bytes_written =
        static_cast<double>(outputs[PagedAttentionOut::o].bytes() + outputs[PagedAttentionOut::lse].bytes());
    return cost;
  }
  // Each rank attends with its query heads to the pages of its key heads.
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (builder.division(PagedAttentionIn::qkv) == kWhole) return Op::shard(builder, node);
    PagedAttentionAttributes own = node.attributes.as<PagedAttentionAttributes>();
    own.heads /= builder.ranks();
    own.kv_heads /= builder.ranks();
    shard_alike(builder, own, kDividedColumns);
  }

 private:
  void expect_pages(InputTypes inputs, const Type& qkv, const PagedAttentionAttributes& a) const {
    const KvPageTypes pages(inputs, PagedAttentionIn::k_cache, PagedAttentionIn::k_scales, name());
    const Type& table = required(inputs, PagedAttentionIn::block_table, name());
    const Type& cu_seqlens = required(inputs, PagedAttentionIn::cu_seqlens, name());
    const Type& starts = required(inputs, PagedAttentionIn::starts, name());
    pages.check(qkv.dtype, a.kv_heads, a.head_dim, name());
    expect(pages.keys.shape[1].size == a.block_size, name(),
           text_of("the pages are ", to_text(pages.keys), "; block_size is ", a.block_size));
    const bool of_ids = table.dtype == DType::kI32 && cu_seqlens.dtype == DType::kI32 && starts.dtype == DType::kI32;
    expect(of_ids && table.shape.size() == 2 && starts.shape == Shape{table.shape[0]} &&
               cu_seqlens.shape == Shape{Dim(table.shape[0].size + 1)},
           name(),
           text_of("block_table is ", to_text(table), ", cu_seqlens ", to_text(cu_seqlens), ", starts ",
                   to_text(starts), "; expected i32 [sequences, max_blocks], [sequences + 1] and [sequences]"));
  }
};

const PagedAttention kPagedAttention;

}  // namespace

Tensor paged_attention(Tensor qkv, const KvPages& pages, Tensor block_table, Tensor cu_seqlens, Tensor starts,
                       const PagedAttentionAttributes& attributes) {
  std::vector<Tensor> inputs{qkv, pages.keys, pages.values, block_table, cu_seqlens, starts};
  if (pages.key_scales) inputs.insert(inputs.end(), {pages.key_scales, pages.value_scales});
  return qkv.program().append(kPagedAttention, attributes, inputs)[0];
}

Tensor paged_attention(Tensor qkv, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor cu_seqlens, Tensor starts,
                       const PagedAttentionAttributes& attributes) {
  return paged_attention(qkv, {k_cache, v_cache, {}, {}}, block_table, cu_seqlens, starts, attributes);
}

void register_paged_attention(OpRegistry& registry) { registry.add(kPagedAttention); }

}  // namespace hone
