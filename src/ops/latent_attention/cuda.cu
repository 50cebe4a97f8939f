#include <cstdlib>
#include <string_view>

#include "ops/latent_attention/latent_attention.h"
#include "ops/latent_attention/simple_latent.cuh"
#include "ops/registry.h"
#ifndef HONE_HIP
#include "ops/latent_attention/latent_launch.cuh"
#endif

namespace hone {
namespace {

template <class T>
PagedKeys<T> latent_keys(const KernelCall& call) {
  const TensorView& cache = call.in(LatentAttentionIn::cache);
  const TensorView& table = call.in(LatentAttentionIn::block_table);
  return {.k = cuda_data<T>(cache),
          .v = nullptr,
          .stride = cache.dim(2),
          .table = table.as<std::int32_t>(),
          .starts = call.in(LatentAttentionIn::starts).as<std::int32_t>(),
          .rows = cache.dim(0) * cache.dim(1),
          .max_blocks = static_cast<std::int32_t>(table.dim(1)),
          .block_size = static_cast<std::int32_t>(cache.dim(1))};
}

#ifndef HONE_HIP
LatentLaunch launch_of(const Type& query, const Type& cache, const Type& table, const LatentAttentionAttributes& a) {
  return {query.rows(), table.rows(), a.heads, table.shape[1].size * cache.shape[1].size};
}

// The environment can ask for the simple kernel, with which tests compare those of latent_launch.cuh.
bool takes_wgmma(const Type& cache, const LatentAttentionAttributes& a) {
  const char* kernel = std::getenv("HONE_LATENT_KERNEL");
  return (kernel == nullptr || std::string_view(kernel) != "simple") && cache.dtype == DType::kBf16 &&
         cache.shape[2].size == kLatentWidth && a.rank == kLatentRank;
}

bool attend_on_hopper(const KernelCall& call, const LatentAttentionAttributes& a, const Sequences& sequences) {
  const TensorView& query = call.in(LatentAttentionIn::query);
  const TensorView& cache = call.in(LatentAttentionIn::cache);
  if (!takes_wgmma(*cache.type, a)) return false;
  LatentQueries queries{};
  queries.sequences = sequences;
  queries.keys = latent_keys<__nv_bfloat16>(call);
  queries.o = cuda_data<__nv_bfloat16>(call.out(0));
  queries.scale = static_cast<float>(a.scale);
  queries.heads = static_cast<std::int32_t>(a.heads);
  return launch_latent_attention(queries, cuda_data<__nv_bfloat16>(query),
                                 launch_of(*query.type, *cache.type, *call.in(LatentAttentionIn::block_table).type, a),
                                 call.workspace, stream_of(call));
}
#endif

void attend(const KernelCall& call) {
  const auto& a = call.attributes_as<LatentAttentionAttributes>();
  HONE_ASSERT(a.scale > 0, "the scale of the scores must be positive, not ", a.scale);
  const TensorView& query = call.in(LatentAttentionIn::query);
  const Sequences sequences{call.in(LatentAttentionIn::cu_seqlens).as<std::int32_t>(),
                            row_count(call.in(LatentAttentionIn::block_table)), query.capacity()};
#ifndef HONE_HIP
  if (attend_on_hopper(call, a, sequences)) return;
#endif
  for_cuda_floating(query.dtype(), [&]<class T>() {
    launch_simple_latent<T>({.sequences = sequences,
                             .keys = latent_keys<T>(call),
                             .q = cuda_data<T>(query),
                             .o = cuda_data<T>(call.out(0)),
                             .heads = static_cast<std::int32_t>(a.heads),
                             .width = static_cast<std::int32_t>(call.in(LatentAttentionIn::cache).dim(2)),
                             .rank = static_cast<std::int32_t>(a.rank),
                             .scale = static_cast<CudaAccumulator<T>>(a.scale)},
                            stream_of(call));
  });
}

#ifdef HONE_HIP
std::size_t workspace(InputTypes, std::span<const Type>, const Attributes&) { return 0; }
#else
std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  const auto& a = attributes.as<LatentAttentionAttributes>();
  const Type& cache = *inputs[LatentAttentionIn::cache];
  if (!takes_wgmma(cache, a)) return 0;
  return launch_of(*inputs[LatentAttentionIn::query], cache, *inputs[LatentAttentionIn::block_table], a)
      .workspace_bytes;
}
#endif

}  // namespace

void register_latent_attention_cuda(KernelRegistry& registry) {
  registry.add("latent_attention", DeviceKind::kCuda, {attend, workspace});
}

}  // namespace hone
