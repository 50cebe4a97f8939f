#include <algorithm>

#include "backend/cpu/attention.h"
#include "ops/paged_attention/paged_attention.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

AttentionShape shape_of(const PagedAttentionAttributes& a) {
  return {.num_heads = a.heads, .num_kv_heads = a.kv_heads, .head_dim = a.head_dim, .scale = a.scale};
}

// View of the first `rows` rows; the rest may be garbage.
std::span<const std::int32_t> ids(const TensorView& view, std::int64_t rows) {
  return {view.as<std::int32_t>(), static_cast<std::size_t>(rows * view.row_size())};
}

// Asserts that every page that holds a visible position exists. paged_attention_forward checks the counts themselves.
void check_pages(const KernelCall& call, std::int64_t block_size) {
  const TensorView& table = call.in(PagedAttentionIn::block_table);
  const auto* cu_seqlens = call.in(PagedAttentionIn::cu_seqlens).as<std::int32_t>();
  const auto* starts = call.in(PagedAttentionIn::starts).as<std::int32_t>();
  const std::int64_t num_blocks = call.in(PagedAttentionIn::k_cache).dim(0);
  for (std::int64_t s = 0; s < table.rows(); ++s) {
    const std::int64_t rows = cu_seqlens[s + 1] - cu_seqlens[s];
    const std::int64_t pages = rows == 0 ? 0 : (starts[s] + rows + block_size - 1) / block_size;
    const auto* row = table.as<std::int32_t>() + s * table.dim(1);
    for (std::int64_t i = 0; i < std::min(pages, table.dim(1)); ++i) {
      HONE_ASSERT(row[i] >= 0 && row[i] < num_blocks, "the block table has page ", row[i], " at index ", i,
                  " of sequence ", s, "; the number of pages is ", num_blocks);
    }
  }
}

template <class T>
void paged_attention_forward_kernel(const KernelCall& call) {
  const auto& a = call.attributes_as<PagedAttentionAttributes>();
  const TensorView& qkv = call.in(PagedAttentionIn::qkv);
  const TensorView& table = call.in(PagedAttentionIn::block_table);
  const std::int64_t sequences = table.rows();
  const TensorView& keys = call.in(PagedAttentionIn::k_cache);
  const TensorView& values = call.in(PagedAttentionIn::v_cache);
  const bool fp8 = keys.dtype() == DType::kU8;
  const auto bytes = [&](std::size_t index) { return fp8 ? call.in(index).as<std::uint8_t>() : nullptr; };
  check_pages(call, a.block_size);
  paged_attention_forward<T>({.queries = {.shape = shape_of(a),
                                          .cu_seqlens = ids(call.in(PagedAttentionIn::cu_seqlens), sequences + 1),
                                          .capacity = qkv.capacity(),
                                          .q = {qkv.as<T>(), qkv.row_size()},
                                          .o = {call.out(PagedAttentionOut::o).as<T>(), a.heads * a.head_dim},
                                          .lse = call.out(PagedAttentionOut::lse).as<Accumulator<T>>(),
                                          .workspace = call.workspace},
                              .k_cache = fp8 ? nullptr : keys.as<T>(),
                              .v_cache = fp8 ? nullptr : values.as<T>(),
                              .fp8_keys = {bytes(PagedAttentionIn::k_cache), bytes(PagedAttentionIn::k_scales)},
                              .fp8_values = {bytes(PagedAttentionIn::v_cache), bytes(PagedAttentionIn::v_scales)},
                              .num_blocks = keys.dim(0),
                              .block_size = a.block_size,
                              .block_table = ids(table, sequences),
                              .max_blocks = table.dim(1),
                              .start = ids(call.in(PagedAttentionIn::starts), sequences)});
}

std::size_t paged_attention_workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  const AttentionShape shape = shape_of(attributes.as<PagedAttentionAttributes>());
  std::size_t bytes = 0;
  for_floating(required(inputs, PagedAttentionIn::qkv, "paged_attention").dtype,
               [&]<class T>() { bytes = attention_workspace_bytes<T>(shape, thread_count()); });
  return bytes;
}

}  // namespace

void register_paged_attention_cpu(KernelRegistry& registry) {
  registry.add("paged_attention", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(PagedAttentionIn::qkv).dtype(),
                               [&]<class T>() { paged_attention_forward_kernel<T>(call); });
                },
                paged_attention_workspace});
}

}  // namespace hone
