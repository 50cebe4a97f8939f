// Copy kernels of the cache of latent rows. blockIdx.x is a row; the threads of a block copy its packs. A pack never
// crosses the parts of a row, because its size divides all of theirs.
#include "ops/cuda_kernel.cuh"
#include "ops/latent_cache/latent_cache.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 128;

// Sizes in units of packs.
struct RowSizes {
  std::int64_t rank, rope;
};

// Copies a row to its slot. A row whose slot is out of range is skipped.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    latent_append_kernel(const Unit* latent, const Unit* rope_key, const std::int32_t* slots, RowCount rows,
                         RowSizes sizes, std::int64_t all_slots, Unit* cache) {
  begin_dependent_kernel();
  const std::int64_t row = blockIdx.x;
  const std::int64_t slot = slots[row];
  if (row >= rows.get() || slot < 0 || slot >= all_slots) return;
  const std::int64_t width = sizes.rank + sizes.rope;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
    cache[slot * width + i] =
        i < sizes.rank ? latent[row * sizes.rank + i] : rope_key[row * sizes.rope + i - sizes.rank];
  }
}

// Copies a row of a page; rows past the count and those of pages that do not exist become zeros.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    latent_rows_kernel(const Unit* cache, const std::int32_t* pages, RowCount rows, RowSizes sizes,
                       std::int64_t block_size, std::int64_t num_blocks, Unit* latent, Unit* rope_key) {
  begin_dependent_kernel();
  const std::int64_t row = blockIdx.x;
  const std::int64_t page = pages[row / block_size];
  const bool is_used = row < rows.get() && page >= 0 && page < num_blocks;
  const std::int64_t width = sizes.rank + sizes.rope;
  const Unit* from = cache + (page * block_size + row % block_size) * width;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
    const Unit unit = is_used ? from[i] : Unit{};
    if (i < sizes.rank) {
      latent[row * sizes.rank + i] = unit;
    } else {
      rope_key[row * sizes.rope + i - sizes.rank] = unit;
    }
  }
}

struct HeadSizes {
  int heads, nope, rope, value;
};

// Writes the keys and values of a row.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    latent_pages_kernel(const Unit* kvs, const Unit* rope_keys, RowCount rows, HeadSizes s, Unit* keys, Unit* values) {
  begin_dependent_kernel();
  const std::int64_t row = blockIdx.x;
  const bool is_used = row < rows.get();
  const int head_dim = s.nope + s.rope;
  const int width = s.heads * head_dim;
  const Unit* kv = kvs + row * s.heads * (s.nope + s.value);
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    const int head = i / head_dim;
    const int at = i - head * head_dim;
    const Unit* of_head = kv + head * (s.nope + s.value);
    Unit key{};
    Unit value{};
    if (is_used) {
      key = at < s.nope ? of_head[at] : rope_keys[row * s.rope + at - s.nope];
      if (at < s.value) value = of_head[s.nope + at];
    }
    keys[row * width + i] = key;
    values[row * width + i] = value;
  }
}

template <class T>
void append_latent(const KernelCall& call) {
  const TensorView& latent = call.in(LatentAppendIn::latent);
  const TensorView& rope_key = call.in(LatentAppendIn::rope_key);
  const TensorView& cache = call.out(0);
  if (latent.capacity() == 0) return;
  with_pack<T>(latent.row_size() | rope_key.row_size(), [&]<int kPack>() {
    using Unit = Pack<T, kPack>;
    launch_dependent({static_cast<unsigned>(latent.capacity()), kThreads}, stream_of(call), latent_append_kernel<Unit>,
                     reinterpret_cast<const Unit*>(latent.data), reinterpret_cast<const Unit*>(rope_key.data),
                     call.in(LatentAppendIn::slots).as<std::int32_t>(), row_count(latent),
                     RowSizes{latent.row_size() / kPack, rope_key.row_size() / kPack}, cache.dim(0) * cache.dim(1),
                     reinterpret_cast<Unit*>(cache.data));
  });
  check_launch("latent_cache_append");
}

template <class T>
void gather_latent(const KernelCall& call) {
  const TensorView& cache = call.in(LatentRowsIn::cache);
  const TensorView& latent = call.out(LatentRowsOut::latent);
  const TensorView& rope_key = call.out(LatentRowsOut::rope_key);
  if (latent.capacity() == 0) return;
  with_pack<T>(latent.row_size() | rope_key.row_size(), [&]<int kPack>() {
    using Unit = Pack<T, kPack>;
    launch_dependent({static_cast<unsigned>(latent.capacity()), kThreads}, stream_of(call), latent_rows_kernel<Unit>,
                     reinterpret_cast<const Unit*>(cache.data), call.in(LatentRowsIn::pages).as<std::int32_t>(),
                     row_count(latent), RowSizes{latent.row_size() / kPack, rope_key.row_size() / kPack}, cache.dim(1),
                     cache.dim(0), reinterpret_cast<Unit*>(latent.data), reinterpret_cast<Unit*>(rope_key.data));
  });
  check_launch("latent_cache_rows");
}

template <class T>
void expand_pages(const KernelCall& call) {
  const LatentHeadsAttributes& a = call.attributes_as<LatentPagesAttributes>().heads;
  const TensorView& kv = call.in(LatentPagesIn::kv);
  if (kv.capacity() == 0) return;
  with_pack<T>(a.nope_dim | a.rope_dim | a.value_dim, [&]<int kPack>() {
    using Unit = Pack<T, kPack>;
    launch_dependent({static_cast<unsigned>(kv.capacity()), kThreads}, stream_of(call), latent_pages_kernel<Unit>,
                     reinterpret_cast<const Unit*>(kv.data),
                     reinterpret_cast<const Unit*>(call.in(LatentPagesIn::rope_key).data), row_count(kv),
                     HeadSizes{static_cast<int>(a.heads), static_cast<int>(a.nope_dim / kPack),
                               static_cast<int>(a.rope_dim / kPack), static_cast<int>(a.value_dim / kPack)},
                     reinterpret_cast<Unit*>(call.out(LatentPagesOut::keys).data),
                     reinterpret_cast<Unit*>(call.out(LatentPagesOut::values).data));
  });
  check_launch("latent_cache_pages");
}

}  // namespace

void register_latent_cache_cuda(KernelRegistry& registry) {
  const auto add = [&](const char* name, auto run) { registry.add(name, DeviceKind::kCuda, {run, {}}); };
  add("latent_cache_append", [](const KernelCall& call) {
    for_cuda_floating(call.in(LatentAppendIn::latent).dtype(), [&]<class T>() { append_latent<T>(call); });
  });
  add("latent_cache_rows", [](const KernelCall& call) {
    for_cuda_floating(call.out(0).dtype(), [&]<class T>() { gather_latent<T>(call); });
  });
  add("latent_cache_pages", [](const KernelCall& call) {
    for_cuda_floating(call.out(0).dtype(), [&]<class T>() { expand_pages<T>(call); });
  });
}

}  // namespace hone
