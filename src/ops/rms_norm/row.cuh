// Kernels of an RMS norm, forward and backward, shared by rms_norm and add_rms_norm: the latter adds a residual before
// the norm and, in the backward pass, the sum's gradient after it.
//
//   forward: block = row                           backward: block b = rows b, b + slices, b + 2 slices, ...
//   | t0 | t1 | ... | t0 | t1 | ... |  n elements   row b             -> dx; dweight += dy x rstd   (in registers)
//     16-byte packs, a block's width apart          row b + slices    -> dx; dweight += dy x rstd
//                                                   ...               -> partials[b, n] -> column_sum.cuh -> dweight
//
// Registers: a row stays in the registers of its block (HeldRow), so that it is read once. bf16, n = 4,096: forward 256
// threads with 2 packs of 8 elements of x, residual and weight each, 3 blocks to an SM for up to 512 threads; backward
// 512 threads with 1 pack of dy, x, dsum and weight, and 8 floats of dweight. Longer rows: 8 (4) packs a thread.
// Shared memory: forward 32 floats. Backward 2 x 32 floats and, with one pack to a thread, a ring of 3 rows of dy, x
// (and dsum), which each thread fills by cp.async for itself alone: 48 KiB (72 KiB) for n = 4,096. Two rows are on
// their way while a third is computed.
//
// Steps of the forward pass for a row:
//   1. load x, residual and weight; x = residual + x, rounded
//   2. sum of squares: each thread, a shuffle tree over the warp, shared memory, __syncthreads(), and the same tree
//      over the warps' sums in every warp, so that no second barrier is needed
//   3. rstd = 1 / sqrt(mean + epsilon); y = x rstd weight, rounded once
// Steps of the backward pass for a row:
//   1. start copying the row two turns ahead; wait for this thread's own part of this row (no barrier)
//   2. dot = sum of dy weight x, as in 2 above. Rows use the two halves of `shared` in turn, so that the one barrier of
//      a row also keeps a fast warp from overwriting sums that a slow one still reads
//   3. dx = rstd (weight dy - x rstd^2 dot / n), rounded; with dsum added, rounded again; dweight += dy x rstd
// Afterwards column_sum.cuh adds the partials of the slices: 32 groups of every 32nd slice, then the groups as a tree.
//
// A row's y and dx do not depend on the batch: threads, packs and trees follow from n alone. dweight adds rows in an
// order that follows from their capacity and from kReductionSms = 132, never from the device or from timing.
#pragma once

#include <algorithm>

#include "ops/column_sum.cuh"
#include "ops/held_row.cuh"
#include "ops/rms_norm/rms_norm.h"
#include "ops/row_ring.cuh"
#include "ops/slices.h"

namespace hone {

// Operands of the forward kernel.
template <class T>
struct RmsNormRows {
  using A = CudaAccumulator<T>;
  const T* x;         // [rows, n]; with a residual, one operand of the sum
  const T* residual;  // [rows, n], or null
  const T* weight;    // [n]
  T* sum;             // [rows, n], or null
  T* y;
  A* rstd;
  RowCount rows;
  std::int64_t n;
  A epsilon;
};

// Computes y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + epsilon), where x is the rounded sum with kAdd. A block
// has one row.
template <class T, int kPack, int kHeld, int kMaxThreads, bool kAdd>
__global__ void __launch_bounds__(kMaxThreads, kHeld == 2 ? 3 : 1) rms_norm_kernel(RmsNormRows<T> p) {
  using A = CudaAccumulator<T>;
  __shared__ A shared[32];
  const std::int64_t row = blockIdx.x;
  const std::int64_t at = row * p.n;
  const int packs = static_cast<int>(p.n / kPack);
  HeldRow<T, kPack, kHeld> x;
  HeldRow<T, kPack, kHeld> residual;
  HeldRow<T, kPack, kHeld> weight;
  allow_dependent_launch();
  // The kernel starts early only if no kernel before it may write the weight (LaunchShape::early).
  weight.template load<true>(p.weight, packs);
  wait_for_prior_kernels();
  // One thread reads the count while the row is being loaded, which is safe because there is memory for every row.
  __shared__ std::int64_t used;
  if (threadIdx.x == 0) used = p.rows.get();
  x.load(p.x + at, packs);
  if constexpr (kAdd) residual.load(p.residual + at, packs);
  if constexpr (kAdd) x.assign([&](int h, int k) { return x.at(h, k) + residual.at(h, k); });
  A squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) squares += x.at(h, k) * x.at(h, k);
  }
  squares = block_sum(squares, shared);
  const bool counts = row < used;
  if (!counts) x = {};
  if constexpr (kAdd) x.store(p.sum + at, packs);
  const A rstd = counts ? A(1) / sqrt(squares / static_cast<A>(p.n) + p.epsilon) : A(0);
  x.assign([&](int h, int k) { return x.at(h, k) * rstd * weight.at(h, k); });
  x.store(p.y + at, packs);
  if (threadIdx.x == 0) p.rstd[row] = rstd;
}

// Launches the forward pass. In and Out are RmsNormIn and RmsNormOut, or those of add_rms_norm: with a residual among
// the inputs, its sum with x is normalised and is also an output.
template <class T, class In, class Out>
void launch_rms_norm(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  constexpr bool kAdd = requires { In::residual; };
  const TensorView& x = call.in(In::x);
  RmsNormRows<T> p{.x = cuda_data<T>(x),
                   .residual = nullptr,
                   .weight = cuda_data<T>(call.in(In::weight)),
                   .sum = nullptr,
                   .y = cuda_data<T>(call.out(Out::y)),
                   .rstd = cuda_data<A>(call.out(Out::rstd)),
                   .rows = row_count(x),
                   .n = x.row_size(),
                   .epsilon = static_cast<A>(call.attributes_as<RmsNormAttributes>().epsilon)};
  if constexpr (kAdd) {
    p.residual = cuda_data<T>(call.in(In::residual));
    p.sum = cuda_data<T>(call.out(Out::sum));
  }
  if (p.rows.capacity == 0) return;
  with_held_row<T, 2, 8, 512>(p.n, [&]<int kPack, int kHeld, int kMaxThreads>(int threads) {
    launch_dependent(
        {static_cast<unsigned>(p.rows.capacity), static_cast<unsigned>(threads), 0, call.in(In::weight).constant},
        stream_of(call), rms_norm_kernel<T, kPack, kHeld, kMaxThreads, kAdd>, p);
  });
  check_launch("rms_norm");
}

// Operands of the backward kernel.
template <class T>
struct RmsNormGradient {
  using A = CudaAccumulator<T>;
  const T* dsum;  // used with kSum
  const T* dy;
  const T* x;
  const T* weight;
  const A* rstd;
  T* dx;
  A* partials;  // [slices, n], or null
  RowCount rows;
  std::int64_t n;
};

// Computes dx = rstd * (w dy - x rstd^2 mean(w dy x)), rounded; with kSum, dsum is added and the sum rounded again.
// Block b takes rows b, b + slices, ..., sums dy x rstd over them and prefetches the next ones meanwhile.
template <class T, int kPack, int kHeld, int kMaxThreads, bool kSum>
__global__ void __launch_bounds__(kMaxThreads) rms_norm_backward_kernel(RmsNormGradient<T> p) {
  using A = CudaAccumulator<T>;
  using Row = HeldRow<T, kPack, kHeld>;
  __shared__ A shared[2][32];
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
  A next_rstd = load_for_later(p.rstd + row);
  const std::int64_t used = p.rows.get();
  Row weight;
  weight.template load<true>(p.weight, packs);
  A dweight[kHeld][kPack]{};
  for (int parity = 0; row < used; row += slices, parity ^= 1) {
    fetch(row + ring.kAhead * slices);
    const A rstd = next_rstd;
    next_rstd = load_for_later(p.rstd + (row + slices < used ? row + slices : row));
    ring.next();
    const Row dy = ring.row(0, packs);
    const Row x = ring.row(1, packs);
    A dot = 0;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        dot += dy.at(h, k) * weight.at(h, k) * x.at(h, k);
        dweight[h][k] += dy.at(h, k) * x.at(h, k) * rstd;
      }
    }
    const A scale = block_sum(dot, shared[parity]) * rstd * rstd / static_cast<A>(p.n);
    Row dx;
    dx.assign([&](int h, int k) { return rstd * (dy.at(h, k) * weight.at(h, k) - x.at(h, k) * scale); });
    if constexpr (kSum) {
      const Row dsum = ring.row(2, packs);
      dx.assign([&](int h, int k) { return dsum.at(h, k) + dx.at(h, k); });
    }
    dx.store(p.dx + row * p.n, packs);
  }
  // Rows past the count get zeros; then this slice's part of dweight is stored.
  for (const Row zero{}; row < p.rows.capacity; row += slices) zero.store(p.dx + row * p.n, packs);
  if (p.partials == nullptr) return;
  A* partial = p.partials + static_cast<std::int64_t>(blockIdx.x) * p.n;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = static_cast<int>(threadIdx.x) + h * static_cast<int>(blockDim.x);
    if (i < packs) store_values(partial + i * kPack, dweight[h]);
  }
}

// Number of slices of the rows: as many blocks as the SMs hold with 1,024 threads each, because a few more would run
// after all the others.
[[nodiscard]] inline std::int64_t rms_norm_slices(std::int64_t rows, int threads) {
  return std::min<std::int64_t>(rows, kReductionSms * std::max(1, 1024 / threads));
}

template <class T, class Body>
void with_rms_norm_gradient(std::int64_t n, const Body& body) {
  with_held_row<T, 1, 4, 1024>(n, body);
}

// Bytes of workspace for the partial sums of dweight. Here and below In and Out are RmsNormBackwardIn and
// RmsNormBackwardOut, or those of add_rms_norm.
template <class In>
[[nodiscard]] std::size_t rms_norm_workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  const Type& x = *inputs[In::x];
  if (!inputs[In::dweight]) return 0;
  std::size_t bytes = 0;
  for_cuda_floating(x.dtype, [&]<class T>() {
    with_rms_norm_gradient<T>(x.row_size(), [&]<int kPack, int kHeld, int kMaxThreads>(int threads) {
      const std::int64_t slices = rms_norm_slices(x.rows(), threads);
      bytes = static_cast<std::size_t>(slices * x.row_size()) * sizeof(CudaAccumulator<T>);
    });
  });
  return bytes;
}

// Launches the backward pass. If dsum is among the inputs and present, it is added to the norm's gradient after that
// has been rounded. The gradient of the weight is added to dweight.
template <class T, class In, class Out>
void launch_rms_norm_backward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  constexpr bool kMayAdd = requires { In::dsum; };
  const T* dsum = nullptr;
  if constexpr (kMayAdd) dsum = cuda_data<T>(call.in(In::dsum));
  const TensorView& x = call.in(In::x);
  A* dweight = call.in(In::dweight) ? cuda_data<A>(call.out(Out::dweight)) : nullptr;
  const RmsNormGradient<T> p{.dsum = dsum,
                             .dy = cuda_data<T>(call.in(In::dy)),
                             .x = cuda_data<T>(x),
                             .weight = cuda_data<T>(call.in(In::weight)),
                             .rstd = cuda_data<A>(call.in(In::rstd)),
                             .dx = cuda_data<T>(call.out(Out::dx)),
                             .partials = dweight != nullptr ? reinterpret_cast<A*>(call.workspace.data()) : nullptr,
                             .rows = row_count(x),
                             .n = x.row_size()};
  if (p.rows.capacity == 0) return;
  std::int64_t slices = 0;
  const auto launch = [&]<bool kSum>() {
    constexpr int kArrays = kSum ? 3 : 2;
    with_rms_norm_gradient<T>(p.n, [&]<int kPack, int kHeld, int kMaxThreads>(int threads) {
      slices = rms_norm_slices(p.rows.capacity, threads);
      const auto kernel = rms_norm_backward_kernel<T, kPack, kHeld, kMaxThreads, kSum>;
      const std::size_t shared = RowRing<T, kPack, kHeld, kArrays>::allow(kernel, threads);
      kernel<<<static_cast<unsigned>(slices), threads, shared, stream_of(call)>>>(p);
    });
  };
  if (kMayAdd && dsum != nullptr) {
    launch.template operator()<kMayAdd>();
  } else {
    launch.template operator()<false>();
  }
  check_launch("rms_norm_backward");
  if (dweight != nullptr) add_column_sums(call, p.partials, slices, p.n, dweight);
}

}  // namespace hone
