// Kernels of a layer norm, forward and backward, shared by layer_norm and add_layer_norm: the latter adds a residual
// before the norm and, in the backward pass, the sum's gradient after it. rms_norm/row.cuh draws the layout: forward
// one block to a row, backward block b takes rows b, b + slices, ...; a row stays in the registers of its block.
//
// The forward pass waits at one barrier only: each warp computes the squares about its own mean, and block_statistics
// merges sums, means and squares of all warps. The backward pass reduces its two sums behind one barrier (block_sums).
// All reductions are fixed trees, so that a row does not depend on the batch.
#pragma once

#include <algorithm>

#include "ops/column_sum.cuh"
#include "ops/held_row.cuh"
#include "ops/row_ring.cuh"
#include "ops/slices.h"

namespace hone {

// Two sums over a block.
template <class A>
struct SumPair {
  A first;
  A second;
};

// Sums of two values over a block with one barrier; `shared` holds 64 values. Half of a warp's lanes reduces the first
// value, the other half the second.
template <class A>
[[nodiscard]] __device__ inline SumPair<A> block_sums(A first, A second, A* shared) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool upper = lane >= 16;
  const auto half_sum = [](A value) {
#pragma unroll
    for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
    return value;
  };
  const A other = __shfl_xor_sync(0xFFFFFFFFu, upper ? first : second, 16);
  const A of_warp = half_sum((upper ? second : first) + other);
  A* mine = shared + (upper ? 32 : 0);
  const int place = lane % 16;
  if (place == 0) mine[threadIdx.x / 32] = of_warp;
  __syncthreads();
  const A low = place < warps ? mine[place] : A(0);
  const A high = place + 16 < warps ? mine[place + 16] : A(0);
  const A of_block = half_sum(low + high);
  return {__shfl_sync(0xFFFFFFFFu, of_block, 0), __shfl_sync(0xFFFFFFFFu, of_block, 16)};
}

// Number of packs of a row that the lanes of a warp hold together.
[[nodiscard]] __device__ inline int held_packs(int held, int packs_a_row, int warp) {
  int packs = 0;
#pragma unroll
  for (int h = 0; h < held; ++h) {
    packs += min(max(packs_a_row - warp * 32 - h * static_cast<int>(blockDim.x), 0), 32);
  }
  return packs;
}

// Statistics of the elements of a row that a warp holds.
template <class A>
struct alignas(4 * sizeof(A)) WarpStatistics {
  A sum;
  A mean;
  A squares;  // sum of squared deviations from that mean
  A elements;
};

template <class A>
struct RowStatistics {
  A mean;
  A variance;
};

// Statistics of a row from those of all warps (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
// computing sample variances", 1979). `inverse` is 1 / n; `shared` holds 32 entries.
template <class A>
[[nodiscard]] __device__ inline RowStatistics<A> block_statistics(const WarpStatistics<A>& of_warp, A inverse,
                                                                  WarpStatistics<A>* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) shared[threadIdx.x / 32] = of_warp;
  __syncthreads();
  WarpStatistics<A> part{};
  if (lane < static_cast<int>(blockDim.x) / 32) part = shared[lane];
  const A mean = warp_sum(part.sum) * inverse;
  const A away = part.mean - mean;
  return {mean, warp_sum(fma(part.elements * away, away, part.squares)) * inverse};
}

// Operands of the forward kernel.
template <class T>
struct LayerNormRows {
  using A = CudaAccumulator<T>;
  const T* x;         // [rows, n]; with a residual, one operand of the sum
  const T* residual;  // [rows, n], or null
  const T* weight;    // [n]
  const T* bias;      // [n]
  T* sum;             // [rows, n], or null
  T* y;
  A* mean;
  A* rstd;
  RowCount rows;
  std::int64_t n;
  A inverse;  // 1 / n
  A epsilon;
};

// Computes y = (x - mean) * rstd * weight + bias, where x is the rounded sum with kAdd. A block has one row.
template <class T, int kPack, int kHeld, int kMaxThreads, bool kAdd>
__global__ void __launch_bounds__(kMaxThreads, kHeld == 4 ? 2 : 1) layer_norm_kernel(LayerNormRows<T> p) {
  using A = CudaAccumulator<T>;
  using Row = HeldRow<T, kPack, kHeld>;
  __shared__ WarpStatistics<A> shared[32];
  const std::int64_t row = blockIdx.x;
  const std::int64_t at = row * p.n;
  const int packs = static_cast<int>(p.n / kPack);
  // One thread reads the count while the row is being loaded, which is safe because there is memory for every row.
  __shared__ std::int64_t used;
  if (threadIdx.x == 0) used = p.rows.get();
  Row x;
  x.load(p.x + at, packs);
  if constexpr (kAdd) {
    Row residual;
    residual.load(p.residual + at, packs);
    x.assign([&](int h, int k) { return x.at(h, k) + residual.at(h, k); });
  }
  A sum = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum += x.at(h, k);
  }
  // A warp's squares are about its own mean, so that the block waits once for both sums.
  WarpStatistics<A> of_warp{};
  of_warp.sum = warp_sum(sum);
  of_warp.elements = static_cast<A>(held_packs(kHeld, packs, static_cast<int>(threadIdx.x) / 32) * kPack);
  of_warp.mean = of_warp.sum / (of_warp.elements > A(0) ? of_warp.elements : A(1));
  A squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (!Row::holds(h, packs)) continue;
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const A centred = x.at(h, k) - of_warp.mean;
      squares = fma(centred, centred, squares);
    }
  }
  of_warp.squares = warp_sum(squares);
  const RowStatistics<A> statistics = block_statistics(of_warp, p.inverse, shared);
  const bool counts = row < used;
  if (!counts) x = {};
  if constexpr (kAdd) x.store(p.sum + at, packs);
  Row weight;
  Row bias;
  weight.template load<true>(p.weight, packs);
  bias.template load<true>(p.bias, packs);
  if (!counts) bias = {};
  const A mean = counts ? statistics.mean : A(0);
  const A rstd = counts ? A(1) / sqrt(statistics.variance + p.epsilon) : A(0);
  x.assign([&](int h, int k) { return fma((x.at(h, k) - mean) * rstd, weight.at(h, k), bias.at(h, k)); });
  x.store(p.y + at, packs);
  if (threadIdx.x != 0) return;
  p.mean[row] = mean;
  p.rstd[row] = rstd;
}

template <class T, bool kAdd>
void launch_layer_norm(const KernelCall& call, const LayerNormRows<T>& p) {
  if (p.rows.capacity == 0) return;
  with_held_row<T, 4, 8, 512>(p.n, [&]<int kPack, int kHeld, int kMaxThreads>(int threads) {
    layer_norm_kernel<T, kPack, kHeld, kMaxThreads, kAdd>
        <<<static_cast<unsigned>(p.rows.capacity), threads, 0, stream_of(call)>>>(p);
  });
  check_launch("layer_norm");
}

// Operands of the backward kernel.
template <class T>
struct LayerNormGradient {
  using A = CudaAccumulator<T>;
  const T* dsum;  // [rows, n], or null without kSum
  const T* dy;
  const T* x;
  const T* weight;
  const A* mean;
  const A* rstd;
  T* dx;
  A* dweight_partials;  // [slices, n], or null
  A* dbias_partials;    // [slices, n], or null with the former
  RowCount rows;
  std::int64_t n;
};

// Computes dx = rstd * (g - mean(g) - z mean(g z)), where g = w dy and z = (x - mean) rstd, rounded; with kSum, dsum is
// added and the sum rounded again. Block b takes rows b, b + slices, ..., sums dy z and dy over them and prefetches the
// next ones meanwhile.
template <class T, int kPack, int kHeld, int kMaxThreads, bool kSum>
__global__ void __launch_bounds__(kMaxThreads) layer_norm_backward_kernel(LayerNormGradient<T> p) {
  using A = CudaAccumulator<T>;
  using Row = HeldRow<T, kPack, kHeld>;
  __shared__ A shared[2][64];
  allow_dependent_launch();
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
  const A inverse = A(1) / static_cast<A>(p.n);
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
    const A offset = sums.first * inverse;
    const A slope = sums.second * inverse * rstd * rstd;  // mean(g z) rstd
    Row dx;
    dx.assign(
        [&](int h, int k) { return rstd * fma(mean - x.at(h, k), slope, dy.at(h, k) * weight.at(h, k) - offset); });
    if constexpr (kSum) {
      const Row dsum = ring.row(2, packs);
      dx.assign([&](int h, int k) { return dsum.at(h, k) + dx.at(h, k); });
    }
    dx.store(p.dx + row * p.n, packs);
  }
  // Rows past the count get zeros; then this slice's parts of dweight and dbias are stored.
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

// Number of slices of the rows: as many blocks as the SMs hold with 1,024 threads each, because a few more would run
// after all the others.
[[nodiscard]] inline std::int64_t layer_norm_slices(std::int64_t rows, int threads) {
  return std::min<std::int64_t>(rows, kReductionSms * std::max(1, 1024 / threads));
}

template <class T, class Body>
void with_layer_norm_gradient(std::int64_t n, const Body& body) {
  with_held_row<T, 1, 4, 1024>(n, body);
}

// Bytes of workspace for the partial sums of dweight and dbias.
template <class T>
[[nodiscard]] std::size_t layer_norm_workspace(const Type& x) {
  std::int64_t slices = 0;
  with_layer_norm_gradient<T>(x.row_size(), [&]<int kPack, int kHeld, int kMaxThreads>(int threads) {
    slices = layer_norm_slices(x.rows(), threads);
  });
  return static_cast<std::size_t>(2 * slices * x.row_size()) * sizeof(CudaAccumulator<T>);
}

// Launches the backward pass and adds the gradients of weight and bias to dweight and dbias [n], unless they are null.
// The pointers to partials in `p` are set here.
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
