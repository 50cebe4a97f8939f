// Attention forward without tensor cores, for f32 and f64, and for bf16 on GPUs for which tensor_forward.cuh is not
// built: its numbers are widened in shared memory and everything is computed in f32. A warp has a few query rows and
// each lane one key of a tile; tiles of 32 keys are counted from the sequence's start. A row's result depends only on
// its query and on the keys up to its position.
#pragma once

#include <cmath>
#include <limits>

#include "backend/cuda/device.h"
#include "ops/attention/fp8_heads.cuh"
#include "ops/attention/tiles.cuh"

namespace hone {

inline constexpr int kSimpleWarps = 4;
inline constexpr int kSimpleKeys = 32;         // keys of a tile
inline constexpr int kSimpleForwardRows = 16;  // query rows of a block

// Calls body.operator()<kParts>(), where kParts is the number of elements of a head that a lane has: lane + 32 i.
template <class Body>
void with_head_parts(std::int64_t head_dim, const Body& body) {
  if (head_dim <= 32) {
    body.template operator()<1>();
  } else if (head_dim <= 64) {
    body.template operator()<2>();
  } else if (head_dim <= 128) {
    body.template operator()<4>();
  } else {
    body.template operator()<8>();
  }
}

// Elements from one row of a tile in shared memory to the next. 16 bytes of padding let the lanes of a warp read 16
// bytes each of successive rows, or one column each of a row, without bank conflicts.
template <class T>
[[nodiscard]] __host__ __device__ constexpr int simple_pitch(int width) {
  return width + kPackSize<T>;
}

// Starts copying rows of `width` elements to shared memory, `pitch` elements apart; source(row) is null for a row of
// zeros. All rows are copied concurrently: a row at a time, a tile takes as long as its rows' latencies together.
template <class A, class T, class Source>
__device__ void start_rows(A* shared, int rows, int width, int pitch, const Source& source, const T* anywhere) {
  const int packs = width / kPackSize<A>;
  for (int i = static_cast<int>(threadIdx.x); i < rows * packs; i += kSimpleWarps * 32) {
    const int row = i / packs;
    const int column = (i - row * packs) * kPackSize<A>;
    const T* from = source(row);
    A* const to = shared + row * pitch + column;
    if constexpr (std::is_same_v<A, T>) {
      copy_async16(shared_address(to), from != nullptr ? from + column : anywhere, from != nullptr);
    } else {
      for (int e = 0; e < kPackSize<A>; ++e) to[e] = from != nullptr ? widened(from[column + e]) : A(0);
    }
  }
}

// Writes rows of FP8 pages to shared memory, widened: key `key` and those after it up to `last`, zeros from there on.
template <class T, class Keys>
__device__ void widen_rows(T* shared, int width, int pitch, const Keys& keys, const SequenceTile& tile,
                           std::int32_t kv_head, bool of_values, std::int64_t key, std::int64_t last) {
  for (int i = static_cast<int>(threadIdx.x); i < kSimpleKeys * width; i += kSimpleWarps * 32) {
    const int row = i / width;
    const int column = i - row * width;
    T number = 0;
    if (key + row <= last) {
      const std::uint8_t* bytes = of_values ? keys.v : keys.k;
      const std::uint8_t* scales = of_values ? keys.value_scales : keys.key_scales;
      const std::int64_t at = keys.offset(tile, key + row) + static_cast<std::int64_t>(kv_head) * width + column;
      number = widened_byte(bytes[at], scales[keys.scale(tile, key + row, kv_head)]);
    }
    shared[row * pitch + column] = number;
  }
}

// Two matrices of kSimpleKeys rows each in shared memory, twice if `stages` is 2: a tile is copied while the one before
// is used.
template <class T>
struct SimpleTiles {
  T* shared;
  int width, stages;

  [[nodiscard]] __host__ __device__ static std::size_t elements(int width) {
    return static_cast<std::size_t>(2 * kSimpleKeys) * static_cast<std::size_t>(simple_pitch<T>(width));
  }
  [[nodiscard]] __device__ T* first(int tile) const { return shared + tile % stages * elements(width); }
  [[nodiscard]] __device__ T* second(int tile) const { return first(tile) + kSimpleKeys * simple_pitch<T>(width); }

  // Calls use(first rows, second rows) for `tiles` tiles, copied by start(tile, first rows, second rows). All threads
  // of the block call it. What they started to copy before is there too when the first tile is used.
  template <class Start, class Use>
  __device__ void for_each(int tiles, const Start& start, const Use& use) const {
    const auto begin = [&](int i) {
      start(i, first(i), second(i));
      copy_async_commit();
    };
    if (tiles > 0) begin(0);
    if (tiles == 0) copy_async_wait<0>();
    for (int i = 0; i < tiles; ++i) {
      const bool ahead = stages > 1 && i + 1 < tiles;
      if (ahead) {
        begin(i + 1);
        copy_async_wait<1>();
      } else {
        copy_async_wait<0>();
      }
      __syncthreads();
      use(i, first(i), second(i));
      __syncthreads();
      if (stages == 1 && i + 1 < tiles) begin(i + 1);
    }
  }
};

template <class T>
[[nodiscard]] __device__ inline const Pack<T, kPackSize<T>>& pack_at(const T* from) {
  return *reinterpret_cast<const Pack<T, kPackSize<T>>*>(from);
}

// Weights of a tile pass from the lanes that computed them to all lanes through shared memory, four at a time: one
// shuffle for each took half of the kernels' time. f64, of which a block would need too much, uses shuffles.
template <class T>
inline constexpr bool kStagesWeights = sizeof(T) == 4;

// Elements in which the warps of a block stage the weights of their `rows` rows.
template <class T>
[[nodiscard]] __host__ __device__ constexpr int staged_weights(int rows) {
  return kStagesWeights<T> ? rows * kSimpleKeys : 0;
}

// result += the sum, over the keys j of a tile in order, of lane j's weight x row j; for each of the warp's rows.
// `staged` [kRows, kSimpleKeys] belongs to the warp.
template <int kParts, int kRows, class T>
__device__ void add_weighted(const T* rows, int width, const T (&weight)[kRows], T* staged,
                             T (&result)[kRows][kParts]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int pitch = simple_pitch<T>(width);
  const auto add = [&](int j, const T(&of_row)[kRows]) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (lane + 32 * part >= width) continue;
      const T value = rows[j * pitch + lane + 32 * part];
#pragma unroll
      for (int r = 0; r < kRows; ++r) result[r][part] = std::fma(of_row[r], value, result[r][part]);
    }
  };
  if constexpr (kStagesWeights<T>) {
    constexpr int kSize = kPackSize<T>;
#pragma unroll
    for (int r = 0; r < kRows; ++r) staged[r * kSimpleKeys + lane] = weight[r];
    __syncwarp();
#pragma unroll 2
    for (int first = 0; first < kSimpleKeys; first += kSize) {
      Pack<T, kSize> packs[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) packs[r] = pack_at(staged + r * kSimpleKeys + first);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        T of_row[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) of_row[r] = packs[r][j];
        add(first + j, of_row);
      }
    }
    __syncwarp();
  } else {
#pragma unroll 8
    for (int j = 0; j < kSimpleKeys; ++j) {
      T of_row[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) of_row[r] = __shfl_sync(0xFFFFFFFFu, weight[r], j);
      add(j, of_row);
    }
  }
}

// The stages of a block's tiles (2 where they fit), and its shared memory with `own` elements besides.
template <class T>
struct SimpleShared {
  int stages;
  std::size_t bytes;

  SimpleShared(std::int64_t head_dim, std::int64_t own) {
    const std::size_t tile = SimpleTiles<T>::elements(static_cast<int>(head_dim)) * sizeof(T);
    const std::size_t own_bytes = static_cast<std::size_t>(own) * sizeof(T);
    const std::size_t most = cuda_device().shared_bytes_per_block();
    stages = own_bytes + 2 * tile <= most ? 2 : 1;
    bytes = own_bytes + static_cast<std::size_t>(stages) * tile;
    if (bytes > most) {
      throw Error("attention",
                  text_of("head_dim ", head_dim, " needs ", bytes, " bytes of shared memory; ", cuda_device().name(),
                          " has ", most),
                  "use a smaller head_dim");
    }
  }
};

// o and lse of kSimpleForwardRows query rows of one key head, which a block has.
template <int kParts, class T, class Keys>
__global__ void __launch_bounds__(kSimpleWarps * 32)
    simple_attention_forward(TileQueries<T> queries, Keys keys, std::int64_t tiles, int stages) {
  using A = CudaAccumulator<T>;
  constexpr int kRows = kSimpleForwardRows / kSimpleWarps;  // rows of a warp
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const int width = queries.head_dim;
  const int pitch = simple_pitch<A>(width);
  A* shared_q = reinterpret_cast<A*>(shared_bytes);
  A* staged = shared_q + kSimpleForwardRows * width;
  const SimpleTiles<A> shared{staged + staged_weights<A>(kSimpleForwardRows), width, stages};

  const std::int32_t group = queries.group();
  const auto kv_head = static_cast<std::int32_t>(blockIdx.x % queries.kv_heads);
  const std::int64_t index = tiles - 1 - blockIdx.x / queries.kv_heads;  // the longest first
  begin_dependent_kernel();
  const SequenceTile tile = sequence_tile(queries.sequences, group, kSimpleForwardRows, index);
  if (tile.first >= tile.end) return;
  if (tile.outside) {
    write_zero_rows(queries, tile, kv_head);
    return;
  }
  const auto head_of = [&](std::int64_t row) { return static_cast<std::int64_t>(kv_head) * group + row % group; };
  const auto query_row = [&](int i) -> const T* {
    const std::int64_t row = tile.first + i;
    if (row >= tile.end) return nullptr;
    return queries.q + (tile.token + row / group) * queries.q_stride + head_of(row) * width;
  };
  start_rows(shared_q, kSimpleForwardRows, width, width, query_row, queries.q);

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool idle = tile.first + warp * kRows >= tile.end;
  const std::int64_t start = keys.start(tile);
  std::int64_t position[kRows];
  A o[kRows][kParts] = {};
  A greatest[kRows];
  A sum[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    position[r] = start + (tile.first + warp * kRows + r) / group;
    greatest[r] = -std::numeric_limits<A>::infinity();
  }
  const std::int64_t last = start + (tile.end - 1) / group;
  const auto copy = [&](int i, A* k, A* v) {
    const std::int64_t key = static_cast<std::int64_t>(i) * kSimpleKeys;
    if constexpr (Keys::kFp8) {
      widen_rows(k, width, pitch, keys, tile, kv_head, false, key, last);
      widen_rows(v, width, pitch, keys, tile, kv_head, true, key, last);
    } else {
      const auto row_of = [&](const T* from, int row) {
        return key + row <= last ? from + keys.offset(tile, key + row) + static_cast<std::int64_t>(kv_head) * width
                                 : nullptr;
      };
      start_rows(k, kSimpleKeys, width, pitch, [&](int row) { return row_of(keys.k, row); }, keys.k);
      start_rows(v, kSimpleKeys, width, pitch, [&](int row) { return row_of(keys.v, row); }, keys.v);
    }
  };
  const auto use = [&](int i, const A* k_rows, const A* v_rows) {
    if (idle) return;
    const std::int64_t key = static_cast<std::int64_t>(i) * kSimpleKeys;
    A weight[kRows] = {};
    for (int d = 0; d < width; d += kPackSize<A>) {
      const auto k = pack_at(k_rows + lane * pitch + d);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const auto q = pack_at(shared_q + (warp * kRows + r) * width + d);
#pragma unroll
        for (int e = 0; e < kPackSize<A>; ++e) weight[r] = std::fma(q[e], k[e], weight[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      // A tile past the row's position changes nothing: its weights are 0 and `most` stays, as the first tile has a key
      // that the row sees.
      const A score = key + lane <= position[r] ? weight[r] * queries.scale : -std::numeric_limits<A>::infinity();
      const A here = warp_max(score);
      const A most = here > greatest[r] ? here : greatest[r];
      const A decay = std::exp(greatest[r] - most);
      weight[r] = std::exp(score - most);
      sum[r] = std::fma(sum[r], decay, warp_sum(weight[r]));
      greatest[r] = most;
#pragma unroll
      for (int part = 0; part < kParts; ++part) o[r][part] *= decay;
    }
    add_weighted(v_rows, width, weight, staged + warp * kRows * kSimpleKeys, o);
  };
  shared.for_each(static_cast<int>(last / kSimpleKeys) + 1, copy, use);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t row = tile.first + warp * kRows + r;
    if (row >= tile.end) continue;
    const std::int64_t head = (tile.token + row / group) * queries.heads + head_of(row);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (lane + 32 * part < width) queries.o[head * width + lane + 32 * part] = narrowed<T>(o[r][part] / sum[r]);
    }
    if (lane == 0) queries.lse[head] = greatest[r] + std::log(sum[r]);
  }
}

template <class T, class Keys>
void launch_simple_attention_forward(const TileQueries<T>& queries, const Keys& keys, cudaStream_t stream) {
  const std::int64_t tiles = tiles_capacity(queries.sequences, queries.group(), kSimpleForwardRows);
  using A = CudaAccumulator<T>;
  const SimpleShared<A> shared(queries.head_dim,
                               kSimpleForwardRows * queries.head_dim + staged_weights<A>(kSimpleForwardRows));
  with_head_parts(queries.head_dim, [&]<int kParts>() {
    const auto kernel = simple_attention_forward<kParts, T, Keys>;
    check_cuda(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared.bytes)),
        "cudaFuncSetAttribute");
    launch_dependent({static_cast<unsigned>(tiles * queries.kv_heads), kSimpleWarps * 32, shared.bytes}, stream, kernel,
                     queries, keys, tiles, shared.stages);
    check_launch("attention");
  });
}

}  // namespace hone
