// Kernels of a layer norm, for the operations that hold one: with or without a sum before it, and in the backward a
// gradient added behind it. A block works on one row at a time, which its threads hold in registers.
#pragma once

#include <algorithm>

#include "ops/column_sum.cuh"
#include "ops/held_row.cuh"
#include "ops/row_ring.cuh"

namespace hone {

template <class A>
struct SumPair {
  A first;
  A second;
};

// block_sum of two values behind one barrier; `shared` holds 64.
template <class A>
[[nodiscard]] __device__ inline SumPair<A> block_sums(A first, A second, A* shared) {
  first = warp_sum(first);
  second = warp_sum(second);
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) {
    shared[threadIdx.x / 32] = first;
    shared[32 + threadIdx.x / 32] = second;
  }
  __syncthreads();
  return {warp_sum(lane < warps ? shared[lane] : A(0)), warp_sum(lane < warps ? shared[32 + lane] : A(0))};
}

// Packs of a row that the lanes of a warp hold together.
[[nodiscard]] __device__ inline int held_packs(int held, int packs_a_row, int warp) {
  int packs = 0;
#pragma unroll
  for (int h = 0; h < held; ++h) {
    packs += min(max(packs_a_row - warp * 32 - h * static_cast<int>(blockDim.x), 0), 32);
  }
  return packs;
}

template <class A>
struct MeanSquares {
  A mean;
  A squares;
};

// A row's mean and the sum of squares about it, from every warp's sum and its squares about its own mean (Chan, Golub
// and LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979). `shared` holds 64.
template <class A>
[[nodiscard]] __device__ inline MeanSquares<A> block_mean_squares(A sum, A squares, int held, int pack, int packs_a_row,
                                                                  A* shared) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) {
    shared[threadIdx.x / 32] = sum;
    shared[32 + threadIdx.x / 32] = squares;
  }
  __syncthreads();
  const bool is_warp = lane < warps;
  const A of_warp = is_warp ? shared[lane] : A(0);
  const A mean = warp_sum(of_warp) / static_cast<A>(packs_a_row * pack);
  const A elements = static_cast<A>(is_warp ? held_packs(held, packs_a_row, lane) * pack : 0);
  const A away = elements > A(0) ? of_warp / elements - mean : A(0);
  return {mean, warp_sum((is_warp ? shared[32 + lane] : A(0)) + elements * away * away)};
}

template <class T>
struct LayerNormRows {
  using A = CudaAccumulator<T>;
  const T* x;         // with a residual: one side of the sum
  const T* residual;  // or null
  const T* weight;
  const T* bias;
  T* sum;  // or null
  T* y;
  A* mean;
  A* rstd;
  RowCount rows;
  std::int64_t n;
  A epsilon;
};

// y = (x - mean) * rstd * weight + bias, where x is the rounded sum if there is a residual.
template <class T, int kPack, int kHeld, int kMaxThreads, bool kAdd>
__global__ void __launch_bounds__(kMaxThreads, kHeld == 2 && sizeof(T) < 8 ? 3 : 1)
    layer_norm_kernel(LayerNormRows<T> p) {
  using A = CudaAccumulator<T>;
  using Row = HeldRow<T, kPack, kHeld>;
  __shared__ A shared[64];
  const std::int64_t row = blockIdx.x;
  const std::int64_t at = row * p.n;
  const int packs = static_cast<int>(p.n / kPack);
  // One thread reads the count, while the row is on its way: there is memory for every row.
  __shared__ std::int64_t used;
  if (threadIdx.x == 0) used = p.rows.get();
  Row x;
  Row residual;
  Row weight;
  Row bias;
  x.load(p.x + at, packs);
  if constexpr (kAdd) residual.load(p.residual + at, packs);
  weight.template load<true>(p.weight, packs);
  bias.template load<true>(p.bias, packs);
  if constexpr (kAdd) x.assign([&](int h, int k) { return x.at(h, k) + residual.at(h, k); });
  A sum = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum += x.at(h, k);
  }
  // A warp's squares are about its own mean: then the block waits once, for both sums.
  sum = warp_sum(sum);
  const A warp_mean =
      sum / static_cast<A>(max(held_packs(kHeld, packs, static_cast<int>(threadIdx.x) / 32) * kPack, 1));
  A squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (!Row::holds(h, packs)) continue;
#pragma unroll
    for (int k = 0; k < kPack; ++k) squares += (x.at(h, k) - warp_mean) * (x.at(h, k) - warp_mean);
  }
  const MeanSquares<A> stats = block_mean_squares<A>(sum, warp_sum(squares), kHeld, kPack, packs, shared);
  const bool counts = row < used;
  if (!counts) x = bias = {};
  if constexpr (kAdd) x.store(p.sum + at, packs);
  const A mean = counts ? stats.mean : A(0);
  const A rstd = counts ? A(1) / sqrt(stats.squares / static_cast<A>(p.n) + p.epsilon) : A(0);
  x.assign([&](int h, int k) { return (x.at(h, k) - mean) * rstd * weight.at(h, k) + bias.at(h, k); });
  x.store(p.y + at, packs);
  if (threadIdx.x != 0) return;
  p.mean[row] = mean;
  p.rstd[row] = rstd;
}

template <class T, bool kAdd>
void launch_layer_norm(const KernelCall& call, const LayerNormRows<T>& p) {
  if (p.rows.capacity == 0) return;
  with_held_row<T, 2, 8, 512>(p.n, [&]<int kPack, int kHeld, int kMaxThreads>(int threads) {
    layer_norm_kernel<T, kPack, kHeld, kMaxThreads, kAdd>
        <<<static_cast<unsigned>(p.rows.capacity), threads, 0, stream_of(call)>>>(p);
  });
  check_launch("layer_norm");
}

template <class T>
struct LayerNormGradient {
  using A = CudaAccumulator<T>;
  const T* dsum;  // with kSum, or null
  const T* dy;
  const T* x;
  const T* weight;
  const A* mean;
  const A* rstd;
  T* dx;
  A* dweight_partials;  // [slices, n], or null
  A* dbias_partials;    // with the former
  RowCount rows;
  std::int64_t n;
};

// With g = w dy and z = (x - mean) rstd: dx = rstd * (g - mean(g) - z mean(g z)), rounded, then with dsum added and
// rounded again. Block b takes the rows b, b + slices, ... and sums dy z and dy over them, while the next ones are on
// their way.
template <class T, int kPack, int kHeld, int kMaxThreads, bool kSum>
__global__ void __launch_bounds__(kMaxThreads) layer_norm_backward_kernel(LayerNormGradient<T> p) {
  using A = CudaAccumulator<T>;
  using Row = HeldRow<T, kPack, kHeld>;
  __shared__ A shared[2][64];
  let_next_start();
  const int packs = static_cast<int>(p.n / kPack);
  const std::int64_t slices = gridDim.x;
  RowRing<T, kPack, kHeld, kSum ? 3 : 2> ring;
  const auto fetch = [&](std::int64_t row) {
    if (row < p.rows.capacity) {
      ring.fetch(0, p.dy + row * p.n, packs);
      ring.fetch(1, p.x + row * p.n, packs);
      if constexpr (kSum) ring.fetch(2, p.dsum + row * p.n, packs);
    }
    ring.fetched();
  };
  std::int64_t row = blockIdx.x;
  for (int ahead = 0; ahead < ring.kAhead; ++ahead) fetch(row + ahead * slices);
  A next_mean = load_for_later(p.mean + row);
  A next_rstd = load_for_later(p.rstd + row);
  const std::int64_t used = p.rows.get();
  Row weight;
  weight.template load<true>(p.weight, packs);
  A dweight[kHeld][kPack]{};
  A dbias[kHeld][kPack]{};
  for (int parity = 0; row < used; row += slices, parity ^= 1) {
    fetch(row + ring.kAhead * slices);
    const A mean = next_mean;
    const A rstd = next_rstd;
    const std::int64_t next = row + slices < used ? row + slices : row;
    next_mean = load_for_later(p.mean + next);
    next_rstd = load_for_later(p.rstd + next);
    ring.next();
    const Row dy = ring.row(0, packs);
    const Row x = ring.row(1, packs);
    A sum = 0;
    A dot = 0;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const A centred = x.at(h, k) - mean;
        const A g = dy.at(h, k) * weight.at(h, k);
        sum += g;
        dot = fma(g, centred, dot);
        dweight[h][k] = fma(dy.at(h, k) * rstd, centred, dweight[h][k]);
        dbias[h][k] += dy.at(h, k);
      }
    }
    const SumPair<A> sums = block_sums(sum, dot, shared[parity]);
    const A offset = sums.first / static_cast<A>(p.n);
    const A slope = sums.second * rstd * rstd / static_cast<A>(p.n);  // mean(g z) rstd
    Row dx;
    dx.assign(
        [&](int h, int k) { return rstd * fma(mean - x.at(h, k), slope, dy.at(h, k) * weight.at(h, k) - offset); });
    if constexpr (kSum) {
      const Row dsum = ring.row(2, packs);
      dx.assign([&](int h, int k) { return dsum.at(h, k) + dx.at(h, k); });
    }
    dx.store(p.dx + row * p.n, packs);
  }
  for (const Row zero{}; row < p.rows.capacity; row += slices) zero.store(p.dx + row * p.n, packs);
  if (p.dweight_partials == nullptr) return;
  const std::int64_t partial = static_cast<std::int64_t>(blockIdx.x) * p.n;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = static_cast<int>(threadIdx.x) + h * static_cast<int>(blockDim.x);
    if (i >= packs) continue;
    store_values(p.dweight_partials + partial + i * kPack, dweight[h]);
    store_values(p.dbias_partials + partial + i * kPack, dbias[h]);
  }
}

// Slices of the rows: as many blocks as 132 multiprocessors hold with 1,024 threads each, since a few more would run
// after all the others.
[[nodiscard]] inline std::int64_t layer_norm_slices(std::int64_t rows, int threads) {
  return std::min<std::int64_t>(rows, 132 * std::max(1, 1024 / threads));
}

template <class T, class Body>
void with_layer_norm_gradient(std::int64_t n, const Body& body) {
  with_held_row<T, 1, 4, 1024>(n, body);
}

// Bytes for the partial sums of dweight and dbias.
template <class T>
[[nodiscard]] std::size_t layer_norm_workspace(const Type& x) {
  std::int64_t slices = 0;
  with_layer_norm_gradient<T>(x.row_size(), [&]<int kPack, int kHeld, int kMaxThreads>(int threads) {
    slices = layer_norm_slices(x.rows(), threads);
  });
  return static_cast<std::size_t>(2 * slices * x.row_size()) * sizeof(CudaAccumulator<T>);
}

// dweight and dbias [n] grow by their gradients, unless they are null; p's partials are set here.
template <class T>
void launch_layer_norm_backward(const KernelCall& call, LayerNormGradient<T> p, CudaAccumulator<T>* dweight,
                                CudaAccumulator<T>* dbias) {
  if (p.rows.capacity == 0) return;
  std::int64_t slices = 0;
  const auto launch = [&]<bool kSum>() {
    constexpr int kArrays = kSum ? 3 : 2;
    with_layer_norm_gradient<T>(p.n, [&]<int kPack, int kHeld, int kMaxThreads>(int threads) {
      slices = layer_norm_slices(p.rows.capacity, threads);
      if (dweight != nullptr) {
        p.dweight_partials = reinterpret_cast<CudaAccumulator<T>*>(call.workspace.data());
        p.dbias_partials = p.dweight_partials + slices * p.n;
      }
      const auto kernel = layer_norm_backward_kernel<T, kPack, kHeld, kMaxThreads, kSum>;
      const std::size_t shared = RowRing<T, kPack, kHeld, kArrays>::allow(kernel, threads);
      kernel<<<static_cast<unsigned>(slices), threads, shared, stream_of(call)>>>(p);
    });
  };
  if (p.dsum != nullptr) {
    launch.template operator()<true>();
  } else {
    launch.template operator()<false>();
  }
  check_launch("layer_norm_backward");
  if (dweight == nullptr) return;
  add_column_sums(call, p.dweight_partials, slices, p.n, dweight, dbias);
}

}  // namespace hone
