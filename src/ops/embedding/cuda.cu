#include <algorithm>

#include "ops/gather.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kLong = 32;  // rows; the sum over more of them is spread over warps

void forward(const KernelCall& call) { launch_gather(call, call.in(1), call.in(0), call.out(0)); }

// The rows of each token that occurs, ascending, in the workspace. Where a token's rows lie depends on which thread
// comes first; which they are, and their order, does not.
struct Groups {
  std::int32_t* placed;       // [1] rows that have a place in `order`
  std::int32_t* shorts;       // [1] tokens with at most kLong rows
  std::int32_t* longs;        // [1] the other tokens that occur
  std::int32_t* counts;       // [vocab] rows of each token
  std::int32_t* starts;       // [vocab] where they start in `order`
  std::int32_t* slots;        // [rows] the place of a row among its token's; -1: the row does not count
  std::int32_t* found;        // [rows] as `order`, but a token's rows in no order
  std::int32_t* order;        // [rows]
  std::int32_t* short_token;  // [rows]
  std::int32_t* long_token;   // [rows / kLong]

  static constexpr std::size_t kHead = 4;  // of them the first three numbers
  static std::size_t bytes(std::int64_t rows, std::int64_t vocab) {
    return (kHead + static_cast<std::size_t>(2 * vocab + 5 * rows)) * sizeof(std::int32_t);
  }
  Groups(std::byte* memory, std::int64_t rows, std::int64_t vocab) {
    auto* at = reinterpret_cast<std::int32_t*>(memory);
    placed = at;
    shorts = at + 1;
    longs = at + 2;
    counts = at + kHead;
    starts = counts + vocab;
    slots = starts + vocab;
    found = slots + rows;
    order = found + rows;
    short_token = order + rows;
    long_token = short_token + rows;
  }
};

__global__ void __launch_bounds__(kThreads)
    count_kernel(const std::int32_t* tokens, RowCount rows, std::int64_t vocab, Groups groups) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows.capacity) return;
  std::int32_t slot = -1;
  if (row < rows.get()) {
    const std::int32_t token = tokens[row];
    if (token >= 0 && token < vocab) slot = atomicAdd(groups.counts + token, 1);
  }
  groups.slots[row] = slot;
}

__global__ void __launch_bounds__(kThreads) place_kernel(const std::int32_t* tokens, RowCount rows, Groups groups) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows.capacity || groups.slots[row] != 0) return;
  const std::int32_t token = tokens[row];
  const std::int32_t count = groups.counts[token];
  groups.starts[token] = atomicAdd(groups.placed, count);
  if (count <= kLong) {
    groups.short_token[atomicAdd(groups.shorts, 1)] = token;
  } else {
    groups.long_token[atomicAdd(groups.longs, 1)] = token;
  }
}

__global__ void __launch_bounds__(kThreads) find_kernel(const std::int32_t* tokens, RowCount rows, Groups groups) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows.capacity || groups.slots[row] < 0) return;
  groups.found[groups.starts[tokens[row]] + groups.slots[row]] = static_cast<std::int32_t>(row);
}

// A warp counts how many rows of the same token come before its row.
__global__ void __launch_bounds__(kThreads) order_kernel(const std::int32_t* tokens, RowCount rows, Groups groups) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= rows.capacity || groups.slots[row] < 0) return;
  const std::int32_t token = tokens[row];
  const std::int32_t count = groups.counts[token];
  const std::int32_t* found = groups.found + groups.starts[token];
  std::int32_t before = 0;
#pragma unroll 4
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x) % 32; i < count; i += 32) before += found[i] < row;
  before = warp_sum(before);
  if (threadIdx.x % 32 == 0) groups.order[groups.starts[token] + before] = static_cast<std::int32_t>(row);
}

// A block adds the rows of a token to its row of the table, one after the other.
template <class T, class G, int kPack>
__global__ void __launch_bounds__(kThreads) short_kernel(const T* dy, std::int64_t n, Groups groups, G* dweight) {
  using Sums = Pack<CudaAccumulator<T>, kPack>;
  if (static_cast<std::int32_t>(blockIdx.x) >= *groups.shorts) return;
  const std::int32_t token = groups.short_token[blockIdx.x];
  const std::int32_t count = groups.counts[token];
  const std::int32_t* order = groups.order + groups.starts[token];
  for (std::int64_t at = static_cast<int>(threadIdx.x) * kPack; at < n; at += kThreads * kPack) {
    auto& stored = *reinterpret_cast<Pack<G, kPack>*>(dweight + token * n + at);
    Sums sum;
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum[k] = widened(stored[k]);
#pragma unroll 4
    for (std::int32_t i = 0; i < count; ++i) {
      const auto values = *reinterpret_cast<const Pack<T, kPack>*>(dy + order[i] * n + at);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] += widened(values[k]);
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k) stored[k] = narrowed<G>(sum[k]);
  }
}

// A block takes 32 packs of a token's row. Warp w adds the rows w, w + 8, ... in the token's order; then the warps are
// added in order.
template <class T, class G, int kPack>
__global__ void __launch_bounds__(kThreads)
    long_kernel(const T* dy, std::int64_t n, int tiles, Groups groups, G* dweight) {
  using Sums = Pack<CudaAccumulator<T>, kPack>;
  __shared__ Sums shared[kWarps][32];
  const auto group = static_cast<std::int32_t>(blockIdx.x / static_cast<unsigned>(tiles));
  if (group >= *groups.longs) return;
  const std::int32_t token = groups.long_token[group];
  const std::int32_t count = groups.counts[token];
  const std::int32_t* order = groups.order + groups.starts[token];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t tile = blockIdx.x % static_cast<unsigned>(tiles);
  const std::int64_t at = (tile * 32 + lane) * kPack;
  Sums sum{};
  if (at < n) {
#pragma unroll 4
    for (std::int32_t i = warp; i < count; i += kWarps) {
      const auto values = *reinterpret_cast<const Pack<T, kPack>*>(dy + order[i] * n + at);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] += widened(values[k]);
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || at >= n) return;
  for (int other = 1; other < kWarps; ++other) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum[k] += shared[other][lane][k];
  }
  auto& stored = *reinterpret_cast<Pack<G, kPack>*>(dweight + token * n + at);
#pragma unroll
  for (int k = 0; k < kPack; ++k) stored[k] = narrowed<G>(widened(stored[k]) + sum[k]);
}

// Of the table only the rows of tokens that occur are touched. A token's rows are added in their order.
template <class T, class G>
void gradient(const KernelCall& call) {
  const TensorView& dy = call.in(0);
  const std::int64_t n = dy.row_size();
  const std::int64_t vocab = call.out(0).dim(0);
  const RowCount rows = row_count(call, dy);
  if (dy.elements() == 0) return;
  const auto* tokens = cuda_data<std::int32_t>(call.in(1));
  const cudaStream_t stream = stream_of(call);
  const Groups groups(call.workspace.data(), rows.capacity, vocab);
  const std::size_t zeroed = (Groups::kHead + static_cast<std::size_t>(vocab)) * sizeof(std::int32_t);
  check_cuda(cudaMemsetAsync(call.workspace.data(), 0, zeroed, stream), "cudaMemset");
  const auto blocks = static_cast<unsigned>(ceil_div(rows.capacity, kThreads));
  count_kernel<<<blocks, kThreads, 0, stream>>>(tokens, rows, vocab, groups);
  check_launch("embedding_gradient: count");
  place_kernel<<<blocks, kThreads, 0, stream>>>(tokens, rows, groups);
  check_launch("embedding_gradient: place");
  find_kernel<<<blocks, kThreads, 0, stream>>>(tokens, rows, groups);
  check_launch("embedding_gradient: find");
  order_kernel<<<static_cast<unsigned>(ceil_div(rows.capacity, kWarps)), kThreads, 0, stream>>>(tokens, rows, groups);
  check_launch("embedding_gradient: order");
  with_pack<T>(n, [&]<int kPack>() {
    auto* dweight = cuda_data<G>(call.out(0));
    const std::int64_t shorts = std::min(rows.capacity, vocab);
    short_kernel<T, G, kPack>
        <<<static_cast<unsigned>(shorts), kThreads, 0, stream>>>(cuda_data<T>(dy), n, groups, dweight);
    check_launch("embedding_gradient: rare tokens");
    const std::int64_t longs = rows.capacity / (kLong + 1);
    if (longs == 0) return;
    const std::int64_t tiles = ceil_div(n, 32 * kPack);
    long_kernel<T, G, kPack><<<static_cast<unsigned>(longs * tiles), kThreads, 0, stream>>>(
        cuda_data<T>(dy), n, static_cast<int>(tiles), groups, dweight);
    check_launch("embedding_gradient: frequent tokens");
  });
}

std::size_t workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  return Groups::bytes(inputs[0]->rows(), outputs[0].rows());
}

}  // namespace

void register_embedding_cuda(KernelRegistry& registry) {
  registry.add("embedding", DeviceKind::cuda, {forward, {}});
  registry.add("embedding_gradient", DeviceKind::cuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(0).dtype(), [&]<class T>() {
                    if (call.out(0).dtype() == DType::bf16) return gradient<T, __nv_bfloat16>(call);
                    gradient<T, CudaAccumulator<T>>(call);
                  });
                },
                workspace});
}

}  // namespace hone
