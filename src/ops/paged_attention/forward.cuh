// Launching attention over pages of any type.
#pragma once

#include "ops/attention/forward.cuh"
#include "ops/cuda_kernel.cuh"
#include "ops/paged_attention/paged_attention.h"

namespace hone {

[[nodiscard]] inline ForwardPlan paged_plan(const Type& qkv, const Type& pages, const Type& table,
                                            const PagedAttentionAttributes& a) {
  return {qkv.rows(),
          table.rows(),
          a.heads,
          a.kv_heads,
          a.head_dim,
          a.values(),
          table.shape[1].size * a.block_size,
          true,
          pages.dtype == DType::kU8};
}

// True if neither the tensor nor its count changes while the program runs.
[[nodiscard]] inline bool is_fixed(const TensorView& view) {
  return view.constant && (view.device_count == nullptr || view.count != nullptr);
}

// The pages of Element that an operation reads.
template <class Element>
[[nodiscard]] PagedKeys<Element> paged_keys(const KernelCall& call, const PagedAttentionAttributes& a) {
  const TensorView& table = call.in(PagedAttentionIn::block_table);
  return {.k = reinterpret_cast<const Element*>(call.in(PagedAttentionIn::k_cache).data),
          .v = reinterpret_cast<const Element*>(call.in(PagedAttentionIn::v_cache).data),
          .stride = a.kv_heads * a.head_dim,
          .table = table.as<std::int32_t>(),
          .starts = call.in(PagedAttentionIn::starts).as<std::int32_t>(),
          .rows = call.in(PagedAttentionIn::k_cache).dim(0) * a.block_size,
          .max_blocks = static_cast<std::int32_t>(table.dim(1)),
          .block_size = static_cast<std::int32_t>(a.block_size),
          .fixed = !a.computed && is_fixed(table) && is_fixed(call.in(PagedAttentionIn::starts)) &&
                   is_fixed(call.in(PagedAttentionIn::cu_seqlens))};
}

// The pages and the start of a sequence are read only if it has rows.
template <class T, class Keys>
void forward_over_pages(const KernelCall& call, const PagedAttentionAttributes& a, const Keys& keys) {
  check_head_dim(a.head_dim);
  const TensorView& qkv = call.in(PagedAttentionIn::qkv);
  const TensorView& table = call.in(PagedAttentionIn::block_table);
  const Sequences sequences{call.in(PagedAttentionIn::cu_seqlens).as<std::int32_t>(), row_count(table), qkv.capacity()};
  const TileQueries<T> queries =
      tile_queries<T>(a, sequences, qkv, call.out(PagedAttentionOut::o), call.out(PagedAttentionOut::lse));
  launch_attention_forward(queries, keys,
                           paged_plan(*qkv.type, *call.in(PagedAttentionIn::k_cache).type, *table.type, a),
                           call.workspace, stream_of(call));
}

// Attention over FP8 pages (fp8_cuda.cu), with queries in bf16 or f32.
void attend_to_fp8_pages(const KernelCall& call);

}  // namespace hone
