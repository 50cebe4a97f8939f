// Copy kernels of multi-head latent attention. A thread copies packs of a row: blockIdx.x is the row, blockIdx.y a
// range of its packs.
#include "ops/cuda_kernel.cuh"
#include "ops/latent_heads/latent_heads.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 4;  // packs of a thread

struct Sizes {
  int heads, nope, rope, value;

  explicit Sizes(const LatentHeadsAttributes& a)
      : heads(static_cast<int>(a.heads)),
        nope(static_cast<int>(a.nope_dim)),
        rope(static_cast<int>(a.rope_dim)),
        value(static_cast<int>(a.value_dim)) {}
  [[nodiscard]] __host__ __device__ int head_dim() const { return nope + rope; }
  [[nodiscard]] __host__ __device__ int query_width() const { return heads * head_dim(); }
  [[nodiscard]] __host__ __device__ int kv_width() const { return heads * (nope + value); }
};

// Index in a row of the first element of the thread's i-th pack; consecutive threads take consecutive packs.
template <int kPack>
[[nodiscard]] __device__ int place_of(int i) {
  return static_cast<int>((blockIdx.y * kPacks + i) * kThreads + threadIdx.x) * kPack;
}

template <class T>
struct Forward {
  const T* query;
  const T* kv;
  const T* rope_key;
  T* qkv;
  RowCount rows;
  Sizes sizes;
};

// Writes qkv. A pack never crosses the parts of a head, because kPack divides all their sizes.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) forward_kernel(Forward<T> p) {
  using Elements = Pack<T, kPack>;
  const Sizes& s = p.sizes;
  const int width = s.query_width();
  const std::int64_t row = blockIdx.x;
  const bool is_used = row < p.rows.get();
  const T* query = p.query + row * width;
  const T* kv = p.kv + row * s.kv_width();  // [heads, nope + value]
  const T* rope_key = p.rope_key + row * s.rope;
  // Source of element `at` of qkv; null if it is padding.
  const auto source = [&](int at) -> const T* {
    if (at < width) return query + at;
    at -= width;
    const bool is_value = at >= width;
    if (is_value) at -= width;
    const int head = at / s.head_dim();
    const int i = at - head * s.head_dim();
    const T* of_head = kv + head * (s.nope + s.value);
    if (is_value) return i < s.value ? of_head + s.nope + i : nullptr;
    return i < s.nope ? of_head + i : rope_key + (i - s.nope);
  };
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int at = place_of<kPack>(i);
    if (at >= 3 * width) return;
    const T* from = is_used ? source(at) : nullptr;
    *reinterpret_cast<Elements*>(p.qkv + row * 3 * width + at) =
        from != nullptr ? *reinterpret_cast<const Elements*>(from) : Elements{};
  }
}

template <class T>
struct Backward {
  const T* dqkv;
  T* dquery;
  T* dkv;
  T* drope_key;
  RowCount rows;
  Sizes sizes;
};

// Copies dquery and dkv, whose packs are numbered one after the other. A thread loads all its packs before it stores.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) backward_kernel(Backward<T> p) {
  using Elements = Pack<T, kPack>;
  const Sizes& s = p.sizes;
  const int width = s.query_width();
  const std::int64_t row = blockIdx.x;
  const bool is_used = row < p.rows.get();
  const T* dq = p.dqkv + row * 3 * width;
  const T* dk = dq + width;  // [heads, head_dim]
  const T* dv = dk + width;  // [heads, head_dim]
  Elements copied[kPacks];
  T* to[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    int at = place_of<kPack>(i);
    const T* from = dq + at;
    to[i] = p.dquery + row * width + at;
    if (at >= width) {
      at -= width;
      const int head = at / (s.nope + s.value);
      const int in_head = at - head * (s.nope + s.value);
      from = (in_head < s.nope ? dk + in_head : dv + (in_head - s.nope)) + head * s.head_dim();
      to[i] = at < s.kv_width() ? p.dkv + row * s.kv_width() + at : nullptr;
    }
    copied[i] = is_used && to[i] != nullptr ? *reinterpret_cast<const Elements*>(from) : Elements{};
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (to[i] != nullptr) *reinterpret_cast<Elements*>(to[i]) = copied[i];
  }
}

// Writes drope_key. A thread has a pack of a row, for which it adds the heads in ascending order.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) rope_key_kernel(Backward<T> p, std::int64_t packs) {
  using Elements = Pack<T, kPack>;
  constexpr int kBatch = 8;  // heads that are loaded before the first of them is added
  const Sizes& s = p.sizes;
  const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const std::int64_t row = pack * kPack / s.rope;
  const T* of_heads = p.dqkv + (3 * row + 1) * s.query_width() + s.nope + pack * kPack % s.rope;
  CudaAccumulator<T> sums[kPack]{};
  for (int first = 0; first < s.heads && row < p.rows.get(); first += kBatch) {
    Elements elements[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (first + j < s.heads) elements[j] = *reinterpret_cast<const Elements*>(of_heads + (first + j) * s.head_dim());
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (first + j >= s.heads) break;
#pragma unroll
      for (int k = 0; k < kPack; ++k) sums[k] += widened(elements[j][k]);
    }
  }
  Elements result;
#pragma unroll
  for (int k = 0; k < kPack; ++k) result[k] = narrowed<T>(sums[k]);
  *reinterpret_cast<Elements*>(p.drope_key + pack * kPack) = result;
}

// Calls body.operator()<kPack>(grid) for rows of `places` elements. kPack divides the sizes of all parts of a head: a
// power of two divides them all if and only if it divides their bitwise or.
template <class T, class Body>
void over_places(const Sizes& s, std::int64_t capacity, std::int64_t places, const Body& body) {
  if (capacity == 0) return;
  with_pack<T>(s.nope | s.rope | s.value, [&]<int kPack>() {
    const std::int64_t stretches = ceil_div(places, std::int64_t{kThreads} * kPacks * kPack);
    body.template operator()<kPack>(dim3(static_cast<unsigned>(capacity), static_cast<unsigned>(stretches)));
  });
}

template <class T>
void forward(const KernelCall& call) {
  const TensorView& qkv = call.out(0);
  const Forward<T> p{.query = cuda_data<T>(call.in(LatentHeadsIn::query)),
                     .kv = cuda_data<T>(call.in(LatentHeadsIn::kv)),
                     .rope_key = cuda_data<T>(call.in(LatentHeadsIn::rope_key)),
                     .qkv = cuda_data<T>(qkv),
                     .rows = row_count(qkv),
                     .sizes = Sizes(call.attributes_as<LatentHeadsAttributes>())};
  over_places<T>(p.sizes, qkv.capacity(), qkv.row_size(),
                 [&]<int kPack>(dim3 grid) { forward_kernel<T, kPack><<<grid, kThreads, 0, stream_of(call)>>>(p); });
  check_launch("latent_heads");
}

template <class T>
void backward(const KernelCall& call) {
  const TensorView& dqkv = call.in(0);
  const Backward<T> p{.dqkv = cuda_data<T>(dqkv),
                      .dquery = cuda_data<T>(call.out(LatentHeadsBackwardOut::dquery)),
                      .dkv = cuda_data<T>(call.out(LatentHeadsBackwardOut::dkv)),
                      .drope_key = cuda_data<T>(call.out(LatentHeadsBackwardOut::drope_key)),
                      .rows = row_count(dqkv),
                      .sizes = Sizes(call.attributes_as<LatentHeadsAttributes>())};
  const std::int64_t places = std::int64_t{p.sizes.query_width()} + p.sizes.kv_width();
  over_places<T>(p.sizes, dqkv.capacity(), places, [&]<int kPack>(dim3 grid) {
    backward_kernel<T, kPack><<<grid, kThreads, 0, stream_of(call)>>>(p);
    const std::int64_t packs = dqkv.capacity() * p.sizes.rope / kPack;
    const auto blocks = static_cast<unsigned>(ceil_div(packs, kThreads));
    if (blocks > 0) rope_key_kernel<T, kPack><<<blocks, kThreads, 0, stream_of(call)>>>(p, packs);
  });
  check_launch("latent_heads_backward");
}

}  // namespace

void register_latent_heads_cuda(KernelRegistry& registry) {
  registry.add(
      "latent_heads", DeviceKind::kCuda,
      {[](const KernelCall& call) { for_cuda_floating(call.out(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
  registry.add(
      "latent_heads_backward", DeviceKind::kCuda,
      {[](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { backward<T>(call); }); },
       {}});
}

}  // namespace hone
