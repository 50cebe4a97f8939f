#include "backend/cpu/attention.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

AttentionShape latent_shape(const LatentAttentionAttributes& a, const Type& cache) {
  return {
      .num_heads = a.heads, .num_kv_heads = 1, .head_dim = cache.shape[2].size, .scale = a.scale, .value_dim = a.rank};
}

template <class T>
void attend_to_latents(const KernelCall& call) {
  const auto& a = call.attributes_as<LatentAttentionAttributes>();
  const TensorView& query = call.in(LatentAttentionIn::query);
  const TensorView& cache = call.in(LatentAttentionIn::cache);
  const TensorView& table = call.in(LatentAttentionIn::block_table);
  const std::int64_t sequences = table.rows();
  const auto ids = [](const TensorView& view, std::int64_t rows) {  // the rest may be garbage
    return std::span(view.as<std::int32_t>(), static_cast<std::size_t>(rows * view.row_size()));
  };
  latent_attention_forward<T>({.queries = {.shape = latent_shape(a, *cache.type),
                                           .cu_seqlens = ids(call.in(LatentAttentionIn::cu_seqlens), sequences + 1),
                                           .capacity = query.capacity(),
                                           .q = {query.as<T>(), query.row_size()},
                                           .o = {call.out(0).as<T>(), a.heads * a.rank},
                                           .workspace = call.workspace},
                               .cache = cache.as<T>(),
                               .num_blocks = cache.dim(0),
                               .block_size = cache.dim(1),
                               .block_table = ids(table, sequences),
                               .max_blocks = table.dim(1),
                               .start = ids(call.in(LatentAttentionIn::starts), sequences)});
}

std::size_t latent_workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  const Type& cache = required(inputs, LatentAttentionIn::cache, "latent_attention");
  const AttentionShape shape = latent_shape(attributes.as<LatentAttentionAttributes>(), cache);
  std::size_t bytes = 0;
  for_floating(cache.dtype, [&]<class T>() { bytes = attention_workspace_bytes<T>(shape, thread_count()); });
  return bytes;
}

}  // namespace

void register_latent_attention_cpu(KernelRegistry& registry) {
  registry.add("latent_attention", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.out(0).dtype(), [&]<class T>() { attend_to_latents<T>(call); });
                },
                latent_workspace});
}

}  // namespace hone
