#include "ops/cuda_kernel.cuh"
#include "ops/kv_append/fp8_pages.cuh"
#include "ops/registry.h"
#include "ops/rope/row.cuh"
#include "ops/rope_append/rope_append.h"

namespace hone {
namespace {

// Operands of the kernel.
template <class T>
struct RopeAppendRows {
  const T* qkv;
  const float* table;
  const std::int32_t* slots;
  RowCount rows;
  std::int64_t all_slots;
  T* y;
  T* k_cache;
  T* v_cache;
};

// Rotates one row, which a block has, and writes its keys and values to its slot as well. A row whose slot is out of
// range is not appended.
template <class T, int kPack>
__global__ void rope_append_kernel(RopeAppendRows<T> p, RotatedRow row, int queries) {
  using Elements = Pack<T, kPack>;
  const std::int64_t at = blockIdx.x;
  begin_dependent_kernel();
  const bool used = at < p.rows.get();
  const std::int64_t slot = p.slots[at];
  const bool appends = used && slot >= 0 && slot < p.all_slots;
  const int width = (row.n - queries) / 2;
  T* y = p.y + at * row.n;
  T* keys = p.k_cache + slot * width - queries;
  T* values = p.v_cache + slot * width - queries - width;
  rotate_row<T, kPack>(p.qkv + at * row.n, p.table + at * row.head_dim, used, row,
                       [&](int column, const Elements& elements) {
                         *reinterpret_cast<Elements*>(y + column) = elements;
                         if (column < queries || !appends) return;
                         T* cache = column < queries + width ? keys : values;
                         *reinterpret_cast<Elements*>(cache + column) = elements;
                       });
}

// Operands of the kernel with FP8 pages.
template <class T>
struct RopeAppendFp8 {
  const T* qkv;
  const float* table;
  const std::int32_t* slots;
  RowCount rows;
  T* y;
  Fp8Pages pages;
};

// Rotates one row, which a block has, and rounds the keys and values of the result to FP8.
template <class T, int kPack>
__global__ void rope_append_fp8_kernel(RopeAppendFp8<T> p, RotatedRow row, int queries) {
  const std::int64_t at = blockIdx.x;
  begin_dependent_kernel();
  const bool used = at < p.rows.get();
  const std::int64_t slot = p.slots[at];
  T* y = p.y + at * row.n;
  rotate_row<T, kPack>(
      p.qkv + at * row.n, p.table + at * row.head_dim, used, row,
      [&](int column, const Pack<T, kPack>& elements) { *reinterpret_cast<Pack<T, kPack>*>(y + column) = elements; });
  if (!used || slot < 0 || slot >= p.pages.slots) return;
  __syncthreads();  // the row is written
  append_fp8(p.pages, y + queries, slot);
}

template <class T>
void rotate_and_append_to_fp8(const KernelCall& call) {
  const TensorView& qkv = call.in(RopeAppendIn::qkv);
  const auto& a = call.attributes_as<KvAppendAttributes>();
  if constexpr (!std::is_same_v<T, double>) {
    if (qkv.capacity() == 0) return;
    const RotatedRow row{.n = static_cast<int>(qkv.row_size()),
                         .heads = static_cast<int>(a.heads + a.kv_heads),
                         .head_dim = static_cast<int>(a.head_dim),
                         .inverse = false};
    const RopeAppendFp8<T> rows{.qkv = cuda_data<T>(qkv),
                                .table = cuda_data<float>(call.in(RopeAppendIn::table)),
                                .slots = cuda_data<std::int32_t>(call.in(RopeAppendIn::slots)),
                                .rows = row_count(qkv),
                                .y = cuda_data<T>(call.out(RopeAppendOut::qkv)),
                                .pages = Fp8Pages::of(call, RopeAppendOut::k_cache, a)};
    with_rotated_row<T>(row, [&]<int kPack>(unsigned threads) {
      launch_dependent({static_cast<unsigned>(qkv.capacity()), threads}, stream_of(call),
                       rope_append_fp8_kernel<T, kPack>, rows, row, static_cast<int>(a.heads * a.head_dim));
    });
    check_launch("rope_append");
  }
}

template <class T>
void rotate_and_append(const KernelCall& call) {
  if (call.out(RopeAppendOut::k_cache).dtype() == DType::kU8) return rotate_and_append_to_fp8<T>(call);
  const TensorView& qkv = call.in(RopeAppendIn::qkv);
  const TensorView& keys = call.out(RopeAppendOut::k_cache);
  const auto& a = call.attributes_as<KvAppendAttributes>();
  if (qkv.capacity() == 0) return;
  const RotatedRow row{.n = static_cast<int>(qkv.row_size()),
                       .heads = static_cast<int>(a.heads + a.kv_heads),
                       .head_dim = static_cast<int>(a.head_dim),
                       .inverse = false};
  const RopeAppendRows<T> rows{.qkv = cuda_data<T>(qkv),
                               .table = cuda_data<float>(call.in(RopeAppendIn::table)),
                               .slots = cuda_data<std::int32_t>(call.in(RopeAppendIn::slots)),
                               .rows = row_count(qkv),
                               .all_slots = keys.dim(0) * keys.dim(1),
                               .y = cuda_data<T>(call.out(RopeAppendOut::qkv)),
                               .k_cache = cuda_data<T>(keys),
                               .v_cache = cuda_data<T>(call.out(RopeAppendOut::v_cache))};
  with_rotated_row<T>(row, [&]<int kPack>(unsigned threads) {
    launch_dependent({static_cast<unsigned>(qkv.capacity()), threads}, stream_of(call), rope_append_kernel<T, kPack>,
                     rows, row, static_cast<int>(a.heads * a.head_dim));
  });
  check_launch("rope_append");
}

}  // namespace

void register_rope_append_cuda(KernelRegistry& registry) {
  registry.add("rope_append", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(RopeAppendIn::qkv).dtype(), [&]<class T>() { rotate_and_append<T>(call); });
                },
                {}});
}

}  // namespace hone
