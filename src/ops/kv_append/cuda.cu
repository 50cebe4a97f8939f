#include "ops/cuda_kernel.cuh"
#include "ops/kv_append/fp8_pages.cuh"
#include "ops/kv_append/kv_append.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 128;

// Sizes and offsets, in units.
struct Layout {
  std::int64_t row;    // length of a row of qkv
  std::int64_t key;    // offset of the keys in a row; the values follow
  std::int64_t width;  // length of a row's keys, and of its values
  std::int64_t slots;  // number of slots in the cache
};

// Copies the keys and values of one row, which a block has, to its slot. A row whose slot is out of range is skipped.
template <class Unit>
__global__ void __launch_bounds__(kThreads) append_kernel(const Unit* qkv, const std::int32_t* slots, RowCount rows,
                                                          Layout layout, Unit* k_cache, Unit* v_cache) {
  const std::int64_t row = blockIdx.x;
  const Unit* from = qkv + row * layout.row + layout.key;
  begin_dependent_kernel();
  // The count, the slot and the thread's first units are loaded together, which is safe because there is memory for
  // every row.
  const std::int64_t used = rows.get();
  const std::int64_t slot = slots[row];
  Unit key{};
  Unit value{};
  const auto load = [&](std::int64_t i) {
    if (i >= layout.width) return;
    key = from[i];
    value = from[layout.width + i];
  };
  load(threadIdx.x);
  if (row >= used || slot < 0 || slot >= layout.slots) return;
  const std::int64_t to = slot * layout.width;
  for (std::int64_t i = threadIdx.x; i < layout.width; i += kThreads) {
    k_cache[to + i] = key;
    v_cache[to + i] = value;
    load(i + kThreads);
  }
}

// Rounds the keys and values of one row, which a block has, to FP8.
template <class T>
__global__ void __launch_bounds__(2 * kThreads)
    append_fp8_kernel(const T* qkv, const std::int32_t* slots, RowCount rows, std::int64_t row_size, std::int64_t key,
                      Fp8Pages pages) {
  const std::int64_t row = blockIdx.x;
  begin_dependent_kernel();
  const std::int64_t slot = slots[row];
  if (row >= rows.get() || slot < 0 || slot >= pages.slots) return;
  append_fp8(pages, qkv + row * row_size + key, slot);
}

template <class T>
void append_to_fp8(const KernelCall& call) {
  const TensorView& qkv = call.in(KvAppendIn::qkv);
  const auto& a = call.attributes_as<KvAppendAttributes>();
  if constexpr (!std::is_same_v<T, double>) {
    if (qkv.capacity() == 0) return;
    launch_dependent({static_cast<unsigned>(qkv.capacity()), 2 * kThreads}, stream_of(call), append_fp8_kernel<T>,
                     cuda_data<T>(qkv), cuda_data<std::int32_t>(call.in(KvAppendIn::slots)), row_count(qkv),
                     qkv.row_size(), a.heads * a.head_dim, Fp8Pages::of(call, KvAppendOut::k_cache, a));
    check_launch("kv_append");
  }
}

template <class T>
void append(const KernelCall& call) {
  if (call.out(KvAppendOut::k_cache).dtype() == DType::kU8) return append_to_fp8<T>(call);
  const TensorView& qkv = call.in(KvAppendIn::qkv);
  const TensorView& keys = call.out(KvAppendOut::k_cache);
  const auto& a = call.attributes_as<KvAppendAttributes>();
  if (qkv.capacity() == 0) return;
  const std::int64_t width = a.kv_heads * a.head_dim;
  const std::int64_t key = a.heads * a.head_dim;
  const auto launch = [&]<int kPack>() {
    using Unit = Pack<T, kPack>;
    const Layout layout{qkv.row_size() / kPack, key / kPack, width / kPack, keys.dim(0) * keys.dim(1)};
    launch_dependent({static_cast<unsigned>(qkv.capacity()), kThreads}, stream_of(call), append_kernel<Unit>,
                     reinterpret_cast<const Unit*>(qkv.data), cuda_data<std::int32_t>(call.in(KvAppendIn::slots)),
                     row_count(qkv), layout, reinterpret_cast<Unit*>(keys.data),
                     reinterpret_cast<Unit*>(call.out(KvAppendOut::v_cache).data));
  };
  if (key % kPackSize<T> == 0) {
    with_pack<T>(width, launch);
  } else {
    launch.template operator()<1>();
  }
  check_launch("kv_append");
}

}  // namespace

void register_kv_append_cuda(KernelRegistry& registry) {
  registry.add("kv_append", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(KvAppendIn::qkv).dtype(), [&]<class T>() { append<T>(call); });
                },
                {}});
}

}  // namespace hone
