#include "ops/attention/forward.cuh"
#include "ops/cuda_kernel.cuh"
#include "ops/paged_attention/paged_attention.h"
#include "ops/registry.h"

namespace hone {
namespace {

ForwardPlan plan_of(const Type& qkv, const Type& table, const PagedAttentionAttributes& a) {
  return {qkv.rows(), table.rows(), a.heads, a.kv_heads, a.head_dim, a.values(), table.shape[1].size * a.block_size,
          true};
}

// True if neither the tensor nor its count changes while the program runs.
bool is_fixed(const TensorView& view) {
  return view.constant && (view.device_count == nullptr || view.count != nullptr);
}

// The pages and the start of a sequence are read only if it has rows.
template <class T>
void forward(const KernelCall& call) {
  const auto& a = call.attributes_as<PagedAttentionAttributes>();
  check_head_dim(a.head_dim);
  const TensorView& qkv = call.in(PagedAttentionIn::qkv);
  const TensorView& table = call.in(PagedAttentionIn::block_table);
  const Sequences sequences{call.in(PagedAttentionIn::cu_seqlens).as<std::int32_t>(), row_count(table), qkv.capacity()};
  const TileQueries<T> queries =
      tile_queries<T>(a, sequences, qkv, call.out(PagedAttentionOut::o), call.out(PagedAttentionOut::lse));
  const PagedKeys<T> keys{.k = cuda_data<T>(call.in(PagedAttentionIn::k_cache)),
                          .v = cuda_data<T>(call.in(PagedAttentionIn::v_cache)),
                          .stride = a.kv_heads * a.head_dim,
                          .table = table.as<std::int32_t>(),
                          .starts = call.in(PagedAttentionIn::starts).as<std::int32_t>(),
                          .rows = call.in(PagedAttentionIn::k_cache).dim(0) * a.block_size,
                          .max_blocks = static_cast<std::int32_t>(table.dim(1)),
                          .block_size = static_cast<std::int32_t>(a.block_size),
                          .fixed = !a.computed && is_fixed(table) && is_fixed(call.in(PagedAttentionIn::starts)) &&
                                   is_fixed(call.in(PagedAttentionIn::cu_seqlens))};
  launch_attention_forward(queries, keys, plan_of(*qkv.type, *table.type, a), call.workspace, stream_of(call));
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  if (inputs[PagedAttentionIn::qkv]->dtype != DType::kBf16) return 0;
  return plan_of(*inputs[PagedAttentionIn::qkv], *inputs[PagedAttentionIn::block_table],
                 attributes.as<PagedAttentionAttributes>())
      .workspace_bytes;
}

}  // namespace

void register_paged_attention_cuda(KernelRegistry& registry) {
  registry.add("paged_attention", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(PagedAttentionIn::qkv).dtype(), [&]<class T>() { forward<T>(call); });
                },
                workspace});
}

}  // namespace hone
