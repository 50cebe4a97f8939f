#include <algorithm>

#include "ops/gather.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kMostThreads = 1024;  // of a block that takes a row
constexpr int kWarps = kThreads / 32;
constexpr int kLong = 32;                  // rows; the sum over more of them is spread over warps
constexpr std::int64_t kLongBlocks = 528;  // for such tokens; there seldom are many

void forward(const KernelCall& call) { launch_gather(call, call.in(1), call.in(0), call.out(0)); }

// The rows of each token that occurs, ascending, in the workspace. Where a token's rows lie depends on which thread
// comes first; which they are, and their order, does not.
struct Groups {
  std::int32_t* placed;      // [1] rows that have a place in `order`
  std::int32_t* shorts;      // [1] tokens with at most kLong rows
  std::int32_t* longs;       // [1] the other tokens that occur
  std::int32_t* counts;      // [vocab] rows of each token
  std::int32_t* starts;      // [vocab] where they start in `order`
  std::int32_t* slots;       // [rows] the place of a row among its token's; -1: the row does not count
  std::int32_t* found;       // [rows] as `order`, but a token's rows in no order
  std::int32_t* order;       // [rows]
  std::int32_t* long_token;  // [rows / kLong]
  int4* shorts_found;        // [rows] {token, its rows, where they start in `order`, one of them}: the `shorts`

  static constexpr std::int64_t kHead = 4;  // of them the first three numbers
  // Made over no memory, it says how much is needed.
  Groups(std::byte* memory, std::int64_t rows, std::int64_t vocab) : base_(memory) {
    placed = take<std::int32_t>(kHead);
    shorts = placed + 1;
    longs = placed + 2;
    counts = take<std::int32_t>(vocab);
    zeroed_ = bytes_;
    starts = take<std::int32_t>(vocab);
    slots = take<std::int32_t>(rows);
    found = take<std::int32_t>(rows);
    order = take<std::int32_t>(rows);
    long_token = take<std::int32_t>(rows / kLong);
    shorts_found = take<int4>(rows);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t zeroed() const { return zeroed_; }  // of them, from the start

 private:
  template <class Element>
  Element* take(std::int64_t count) {
    auto* piece = reinterpret_cast<Element*>(base_ + bytes_);
    bytes_ += align_up(static_cast<std::size_t>(count) * sizeof(Element));
    return piece;
  }

  std::byte* base_;
  std::size_t bytes_ = 0;
  std::size_t zeroed_ = 0;
};

__global__ void __launch_bounds__(kThreads)
    count_kernel(const std::int32_t* tokens, RowCount rows, std::int64_t vocab, Groups groups) {
  let_next_start();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows.capacity) return;
  const std::int32_t token = tokens[row];  // there is memory for every row
  std::int32_t slot = -1;
  if (row < rows.get() && token >= 0 && token < vocab) slot = atomicAdd(groups.counts + token, 1);
  groups.slots[row] = slot;
}

// A warp asks for the places of all its tokens at once: the numbers that all ask for change one after the other.
__global__ void __launch_bounds__(kThreads) place_kernel(const std::int32_t* tokens, RowCount rows, Groups groups) {
  let_next_start();
  wait_for_previous();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::int32_t token = 0;
  std::int32_t count = 0;
  if (row < rows.capacity && groups.slots[row] == 0) {
    token = tokens[row];
    count = groups.counts[token];
  }
  std::int32_t through = count;  // of the lanes up to this one
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const std::int32_t before = __shfl_up_sync(0xFFFFFFFFu, through, step);
    if (lane >= step) through += before;
  }
  const unsigned shorts = __ballot_sync(0xFFFFFFFFu, count > 0 && count <= kLong);
  const unsigned longs = __ballot_sync(0xFFFFFFFFu, count > kLong);
  const std::int32_t all = __shfl_sync(0xFFFFFFFFu, through, 31);
  if (all == 0) return;
  std::int32_t first = 0;  // of `placed`, `shorts` and `longs`, which lie so
  if (lane < 3) first = atomicAdd(groups.placed + lane, lane == 0 ? all : __popc(lane == 1 ? shorts : longs));
  const std::int32_t start = __shfl_sync(0xFFFFFFFFu, first, 0) + through - count;
  const std::int32_t first_short = __shfl_sync(0xFFFFFFFFu, first, 1);
  const std::int32_t first_long = __shfl_sync(0xFFFFFFFFu, first, 2);
  if (count == 0) return;
  const unsigned before = (1u << lane) - 1;
  groups.starts[token] = start;
  if (count <= kLong) {
    groups.shorts_found[first_short + __popc(shorts & before)] = {token, count, start, static_cast<std::int32_t>(row)};
  } else {
    groups.long_token[first_long + __popc(longs & before)] = token;
  }
}

__global__ void __launch_bounds__(kThreads) find_kernel(const std::int32_t* tokens, RowCount rows, Groups groups) {
  let_next_start();
  wait_for_previous();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows.capacity || groups.slots[row] < 0) return;
  groups.found[groups.starts[tokens[row]] + groups.slots[row]] = static_cast<std::int32_t>(row);
}

// A warp counts how many rows of the same token come before its row.
__global__ void __launch_bounds__(kThreads) order_kernel(const std::int32_t* tokens, RowCount rows, Groups groups) {
  let_next_start();
  wait_for_previous();
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
__global__ void __launch_bounds__(kMostThreads) short_kernel(const T* dy, std::int64_t n, Groups groups, G* dweight) {
  using Sums = Pack<CudaAccumulator<T>, kPack>;
  let_next_start();
  wait_for_previous();
  const int4 mine = groups.shorts_found[blockIdx.x];  // there is memory for one of every row
  if (static_cast<std::int32_t>(blockIdx.x) >= *groups.shorts) return;
  const std::int32_t token = mine.x;
  const std::int32_t count = mine.y;
  const std::int32_t* order = groups.order + mine.z;
  const int stride = static_cast<int>(blockDim.x) * kPack;
  for (std::int64_t at = static_cast<int>(threadIdx.x) * kPack; at < n; at += stride) {
    G* stored = dweight + token * n + at;
    const auto before = load_streamed<G, kPack>(stored);
    Sums sum;
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum[k] = widened(before[k]);
#pragma unroll 2
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int64_t row = count == 1 ? mine.w : order[i];
      const auto values = load_streamed<T, kPack>(dy + row * n + at);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] += widened(values[k]);
    }
    G after[kPack];
#pragma unroll
    for (int k = 0; k < kPack; ++k) after[k] = narrowed<G>(sum[k]);
    store_values(stored, after);
  }
}

// A block takes 32 packs of a token's row at a time. Warp w adds the rows w, w + 8, ... in the token's order; then the
// warps are added in order.
template <class T, class G, int kPack>
__global__ void __launch_bounds__(kThreads)
    long_kernel(const T* dy, std::int64_t n, int tiles, Groups groups, G* dweight) {
  using Sums = Pack<CudaAccumulator<T>, kPack>;
  __shared__ Sums shared[kWarps][32];
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t items = std::int64_t{*groups.longs} * tiles;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int32_t token = groups.long_token[item / tiles];
    const std::int32_t count = groups.counts[token];
    const std::int32_t* order = groups.order + groups.starts[token];
    const std::int64_t at = (item % tiles * 32 + lane) * kPack;
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
    if (warp == 0 && at < n) {
      for (int other = 1; other < kWarps; ++other) {
#pragma unroll
        for (int k = 0; k < kPack; ++k) sum[k] += shared[other][lane][k];
      }
      auto& stored = *reinterpret_cast<Pack<G, kPack>*>(dweight + token * n + at);
#pragma unroll
      for (int k = 0; k < kPack; ++k) stored[k] = narrowed<G>(widened(stored[k]) + sum[k]);
    }
    __syncthreads();
  }
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
  check_cuda(cudaMemsetAsync(call.workspace.data(), 0, groups.zeroed(), stream), "cudaMemset");
  const auto blocks = static_cast<unsigned>(ceil_div(rows.capacity, kThreads));
  count_kernel<<<blocks, kThreads, 0, stream>>>(tokens, rows, vocab, groups);
  check_launch("embedding_gradient: count");
  launch_behind(call, place_kernel, blocks, kThreads, tokens, rows, groups);
  launch_behind(call, find_kernel, blocks, kThreads, tokens, rows, groups);
  launch_behind(call, order_kernel, static_cast<unsigned>(ceil_div(rows.capacity, kWarps)), kThreads, tokens, rows,
                groups);
  with_pack<T>(n, [&]<int kPack>() {
    auto* dweight = cuda_data<G>(call.out(0));
    const std::int64_t shorts = std::min(rows.capacity, vocab);
    const std::int64_t threads = std::min<std::int64_t>(ceil_div(ceil_div(n, kPack), 32) * 32, kMostThreads);
    launch_behind(call, short_kernel<T, G, kPack>, static_cast<unsigned>(shorts), static_cast<unsigned>(threads),
                  cuda_data<T>(dy), n, groups, dweight);
    const std::int64_t longs = rows.capacity / (kLong + 1);
    if (longs == 0) return;
    const std::int64_t tiles = ceil_div(n, 32 * kPack);
    launch_behind(call, long_kernel<T, G, kPack>, static_cast<unsigned>(std::min(longs * tiles, kLongBlocks)), kThreads,
                  cuda_data<T>(dy), n, static_cast<int>(tiles), groups, dweight);
  });
}

std::size_t workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  return Groups(nullptr, inputs[0]->rows(), outputs[0].rows()).bytes();
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
