// Attention to latent rows without tensor cores, for every type, device and size. A warp has one token and head; the
// warps of a block have heads of one token and share tiles of 16 rows, counted from the sequence's start. A row's
// result depends only on its query and on the rows up to its position.
#pragma once

#include <cmath>
#include <limits>

#include "core/error.h"
#include "ops/attention/tiles.cuh"

namespace hone {

inline constexpr int kSimpleLatentWarps = 8;
inline constexpr int kSimpleLatentKeys = 16;  // rows of a tile; results depend on it
inline constexpr int kMostLatentParts = 20;   // elements of a row that a lane may have: lane + 32 i

template <class T>
struct SimpleLatents {
  Sequences sequences;
  PagedKeys<T> keys;  // k: [rows, width]
  const T* q;         // [capacity, heads, width]
  T* o;               // [capacity, heads, rank]
  std::int32_t heads, width, rank;
  CudaAccumulator<T> scale;
};

// Query and output of a warp: a lane has the elements lane + 32 i of both.
template <int kParts, class A>
struct SimpleLatentRow {
  A q[kParts];
  A o[kParts] = {};
  A greatest = -std::numeric_limits<A>::infinity();
  A sum = 0;

  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // A step of the online softmax over the first `count` rows of a tile in shared memory.
  __device__ void add_tile(const A* tile, int count, int width, int rank, A scale) {
    A weight = -std::numeric_limits<A>::infinity();  // lane j: of key j
    for (int j = 0; j < count; ++j) {
      A score = 0;
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        if (lane() + 32 * i < width) score = std::fma(q[i], tile[j * width + lane() + 32 * i], score);
      }
      score = warp_sum(score);
      if (lane() == j) weight = score * scale;
    }
    const A here = warp_max(weight);
    const A most = here > greatest ? here : greatest;
    const A decay = std::exp(greatest - most);
    weight = std::exp(weight - most);
    sum = std::fma(sum, decay, warp_sum(weight));
    greatest = most;
#pragma unroll
    for (int i = 0; i < kParts; ++i) o[i] *= decay;
    for (int j = 0; j < count; ++j) {
      const A of_key = __shfl_sync(0xFFFFFFFFu, weight, j);
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        if (lane() + 32 * i < rank) o[i] = std::fma(of_key, tile[j * width + lane() + 32 * i], o[i]);
      }
    }
  }
};

// blockIdx.x: a token (a tile of one row), blockIdx.y: heads.
template <int kParts, class T>
__global__ void __launch_bounds__(kSimpleLatentWarps * 32) simple_latent_attention(SimpleLatents<T> of) {
  using A = CudaAccumulator<T>;
  extern __shared__ __align__(16) unsigned char latent_bytes[];
  A* shared = reinterpret_cast<A*>(latent_bytes);  // [kSimpleLatentKeys, width]
  begin_dependent_kernel();
  const SequenceTile tile = sequence_tile(of.sequences, 1, 1, blockIdx.x);
  if (tile.first >= tile.end) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y) * kSimpleLatentWarps + static_cast<int>(threadIdx.x) / 32;
  const bool idle = head >= of.heads;
  const std::int64_t row = (tile.token + tile.first) * of.heads + head;
  if (tile.outside) {
    for (int d = lane; !idle && d < of.rank; d += 32) of.o[row * of.rank + d] = narrowed<T>(0);
    return;
  }
  const int last = static_cast<int>(of.keys.start(tile)) + tile.first;  // position of the query
  SimpleLatentRow<kParts, A> own;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int d = lane + 32 * i;
    own.q[i] = !idle && d < of.width ? widened(of.q[row * of.width + d]) : A(0);
  }
  for (int first = 0; first <= last; first += kSimpleLatentKeys) {
    const int count = min(kSimpleLatentKeys, last - first + 1);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count * of.width; i += kSimpleLatentWarps * 32) {
      shared[i] = widened(of.keys.k[of.keys.offset(tile, first + i / of.width) + i % of.width]);
    }
    __syncthreads();
    own.add_tile(shared, count, of.width, of.rank, of.scale);
  }
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int d = lane + 32 * i;
    if (!idle && d < of.rank) of.o[row * of.rank + d] = narrowed<T>(own.o[i] / own.sum);
  }
}

template <class T>
void launch_simple_latent(const SimpleLatents<T>& of, cudaStream_t stream) {
  if (of.width > 32 * kMostLatentParts) {
    throw Error("latent_attention",
                text_of("a latent row has ", of.width, " numbers; the kernels take up to ", 32 * kMostLatentParts));
  }
  const std::int64_t tiles = tiles_capacity(of.sequences, 1, 1);
  const std::size_t bytes = static_cast<std::size_t>(kSimpleLatentKeys * of.width) * sizeof(CudaAccumulator<T>);
  const std::size_t most = cuda_device().shared_bytes_per_block();
  if (bytes > most) {
    throw Error("latent_attention",
                text_of("a latent row of ", of.width, " numbers needs ", bytes, " bytes of shared memory; ",
                        cuda_device().name(), " has ", most),
                "use latent_attention expanded");
  }
  const auto launch = [&](void (*kernel)(SimpleLatents<T>)) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
               "cudaFuncSetAttribute");
    const auto heads = static_cast<unsigned>(ceil_div(of.heads, kSimpleLatentWarps));
    launch_dependent({dim3(static_cast<unsigned>(tiles), heads), kSimpleLatentWarps * 32, bytes}, stream, kernel, of);
    check_launch("latent attention");
  };
  if (of.width <= 128) {
    launch(simple_latent_attention<4, T>);
  } else {
    launch(simple_latent_attention<kMostLatentParts, T>);
  }
}

}  // namespace hone
