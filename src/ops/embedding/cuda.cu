// Embedding lookup (gather.cuh) and its gradient: dweight[token] += the rows of dy of that token, in ascending order.
//
// Only rows of the table whose token occurs are read and written. Four kernels run one after the other; each is allowed
// to start before the one before it has ended and waits for its results itself (launch_dependent).
//
//   tokens        7 3 7 9 3 7 ...                       rows 0 1 2 3 4 5
//   counts[7]=3   last[7] -> 5 -> 0 -> 2 -> end         linked list in order of arrival: last and before hold row + 1
//   order         0 2 5                                 what the list is sorted to before anything is added
//
// Steps:
//   1. zero_kernel     clears counts, last and the two counters
//   2. list_kernel     one thread to a row: counts[token] += 1, and the row is put at the head of its token's list. The
//                      33rd row of a token adds the token to long_token
//   3. short_kernel    the first rows / 33 blocks collect the rows of one long token each, ascending: they scan the
//                      tokens, and ballots and counts of the warps give each row its place. The others have one row
//                      each: if it is the head of its token's list and the list has at most kLong = 32 rows, one warp
//                      sorts them (a lane to a row; its place is the number of smaller ones), __syncthreads(), and the
//                      block adds dweight[token] + dy[r0] + dy[r1] + ... in that order
//   4. long_kernel     items of (long token, 32 packs of columns); 8 warps: warp w adds the rows w, w + 8, ... of the
//                      token's order; __syncthreads(); warp 0 adds the 8 sums in order, then dweight[token]
// A pack is 16 bytes of dy. Sums are f32 (f64) in registers; dweight is rounded once. Shared memory: 32 row numbers in
// step 3, 8 x 32 packs of sums in step 4. Workspace: 2 vocab + about 2 rows numbers of 32 bits.
//
// The result does not depend on timing: atomics decide the order of arrival, the place of a token among the long ones
// and where its rows begin in `order`. All that reaches a sum is the ascending rows of one token, and their number.
#include <algorithm>

#include "ops/embedding/embedding.h"
#include "ops/gather.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kMostThreads = 1024;  // threads at most of a block of short_kernel
constexpr int kWarps = kThreads / 32;
constexpr int kLong = 32;                // a token with more rows is long: its sum is spread over warps
constexpr std::int64_t kLongBlocks = 4;  // blocks of an SM for long tokens, of which there seldom are many

void forward(const KernelCall& call) {
  launch_gather(call, call.in(EmbeddingIn::weight), call.in(EmbeddingIn::tokens), call.out(0));
}

// Workspace: the rows of each token. They form a linked list in the order in which threads arrived; those of a long
// token are also an ascending array. The sums use only the ascending order, never that of arrival.
struct Groups {
  std::int32_t* longs;       // [1] number of long tokens
  std::int32_t* placed;      // [1] number of entries of `order` that are taken
  std::int32_t* counts;      // [vocab] number of rows of each token
  std::int32_t* last;        // [vocab] 1 + the row of the token that arrived last
  std::int32_t* before;      // [rows] 1 + the row of the same token that arrived before; 0 if none did
  std::int32_t* long_token;  // [rows / kLong] the long tokens
  std::int32_t* long_start;  // [rows / kLong] index in `order` of a long token's first row
  std::int32_t* order;       // [rows] rows of the long tokens, ascending for each token

  static constexpr std::int64_t kHead = 4;  // numbers, of which longs and placed are the first two
  // Lays the arrays out in `memory`. If that is null, only bytes() and zeroed() may be used.
  Groups(std::byte* memory, std::int64_t rows, std::int64_t vocab) : base_(memory) {
    longs = take(kHead);
    placed = longs + 1;
    counts = take(vocab);
    last = take(vocab);
    zeroed_ = bytes_;
    before = take(rows);
    long_token = take(rows / kLong);
    long_start = take(rows / kLong);
    order = take(rows);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t zeroed() const { return zeroed_; }  // bytes at the start that must be cleared

 private:
  std::int32_t* take(std::int64_t count) {
    auto* piece = reinterpret_cast<std::int32_t*>(base_ + bytes_);
    bytes_ += align_up(static_cast<std::size_t>(count) * sizeof(std::int32_t));
    return piece;
  }

  std::byte* base_;
  std::size_t bytes_ = 0;
  std::size_t zeroed_ = 0;
};

// Clears the start of the workspace. cudaMemsetAsync would not do: the next kernel could not start before its end.
__global__ void __launch_bounds__(kThreads) zero_kernel(uint4* memory, std::int64_t packs) {
  allow_dependent_launch();
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < packs) memory[at] = {};
}

// Adds each row to the list of its token. A thread has one row.
__global__ void __launch_bounds__(kThreads)
    list_kernel(const std::int32_t* tokens, RowCount rows, std::int64_t vocab, Groups groups) {
  allow_dependent_launch();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int32_t token = row < rows.capacity ? tokens[row] : -1;
  const bool counts = row < rows.get() && token >= 0 && token < vocab;
  wait_for_prior_kernels();
  if (!counts) return;
  const std::int32_t number = atomicAdd(groups.counts + token, 1);
  groups.before[row] = atomicExch(groups.last + token, static_cast<std::int32_t>(row) + 1);
  if (number == kLong) groups.long_token[atomicAdd(groups.longs, 1)] = token;
}

// Writes the rows of long token number blockIdx.x to `order`, ascending.
__device__ void collect_long(const std::int32_t* tokens, RowCount rows, const Groups& groups) {
  __shared__ std::int32_t found[kMostThreads / 32];  // rows of the token that each warp found in this tile of rows
  __shared__ std::int32_t start;
  if (static_cast<std::int32_t>(blockIdx.x) >= *groups.longs) return;
  const std::int32_t token = groups.long_token[blockIdx.x];
  if (threadIdx.x == 0) {
    start = atomicAdd(groups.placed, groups.counts[token]);
    groups.long_start[blockIdx.x] = start;
  }
  const std::int64_t used = rows.get();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  std::int32_t done = 0;
  for (std::int64_t first = 0; first < used; first += blockDim.x) {
    const std::int64_t row = first + threadIdx.x;
    const bool is_mine = row < used && tokens[row] == token;
    const unsigned mine = __ballot_sync(0xFFFFFFFFu, is_mine);
    __syncthreads();  // `found` of the previous tile of rows has been read, and `start` has been written
    if (threadIdx.x % 32 == 0) found[warp] = __popc(mine);
    __syncthreads();
    // The rows that lower warps found come before those of this warp, so that `order` ascends.
    std::int32_t before = 0;
    std::int32_t all = 0;
    for (int other = 0; other < static_cast<int>(blockDim.x) / 32; ++other) {
      if (other < warp) before += found[other];
      all += found[other];
    }
    const unsigned lower = (1u << threadIdx.x % 32) - 1;
    if (is_mine) groups.order[start + done + before + __popc(mine & lower)] = static_cast<std::int32_t>(row);
    done += all;
  }
}

// Walks the list of a token's `count` rows (at most 32), whose head is `row`, and writes them to `order` in ascending
// order. Called by one warp.
__device__ void collect_short(std::int32_t row, std::int32_t count, const Groups& groups, std::int32_t* order) {
  const int lane = static_cast<int>(threadIdx.x);
  std::int32_t mine = 0;
  for (int i = 0; i < count; ++i) {
    if (lane == i) mine = row;
    row = groups.before[row] - 1;
  }
  int place = 0;
  for (int i = 0; i < count; ++i) place += __shfl_sync(0xFFFFFFFFu, mine, i) < mine;
  if (lane < count) order[place] = mine;
}

// The first `collectors` blocks collect the rows of long tokens. Each other block has one row; if that is the head of
// its token's list and the token is not long, the block adds the token's rows to its row of the table in ascending
// order.
template <class T, class G, int kPack>
__global__ void __launch_bounds__(kMostThreads, 2)
    short_kernel(const std::int32_t* tokens, const T* dy, RowCount rows, std::int64_t n, std::int64_t vocab,
                 int collectors, Groups groups, G* dweight) {
  using Sums = Pack<CudaAccumulator<T>, kPack>;
  static_assert(kLong <= 32);
  __shared__ std::int32_t order[kLong];
  allow_dependent_launch();
  if (static_cast<int>(blockIdx.x) < collectors) {
    wait_for_prior_kernels();
    collect_long(tokens, rows, groups);
    return;
  }
  const auto last = static_cast<std::int32_t>(blockIdx.x) - collectors;
  const std::int32_t token = tokens[last];
  wait_for_prior_kernels();
  if (token < 0 || token >= vocab) return;
  const std::int32_t count = groups.counts[token];
  if (groups.last[token] != last + 1 || count > kLong) return;
  if (count > 1) {
    if (threadIdx.x < 32) collect_short(last, count, groups, order);
    __syncthreads();
  }
  const int stride = static_cast<int>(blockDim.x) * kPack;
  for (std::int64_t at = static_cast<int>(threadIdx.x) * kPack; at < n; at += stride) {
    G* stored = dweight + token * n + at;
    const auto before = load_streamed<G, kPack>(stored);
    // Both loads are started before the first use of either.
    const auto first = load_streamed<T, kPack>(dy + std::int64_t{count == 1 ? last : order[0]} * n + at);
    Sums sum;
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum[k] = widened(before[k]) + widened(first[k]);
#pragma unroll 1
    for (std::int32_t i = 1; i < count; ++i) {
      const auto values = load_streamed<T, kPack>(dy + std::int64_t{order[i]} * n + at);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] += widened(values[k]);
    }
    G after[kPack];
#pragma unroll
    for (int k = 0; k < kPack; ++k) after[k] = narrowed<G>(sum[k]);
    store_values(stored, after);
  }
}

// Adds the rows of the long tokens. A block takes 32 packs of columns of one token at a time. Warp w adds rows w, w +
// 8, ... of the token's order; then the sums of the warps are added in order.
template <class T, class G, int kPack>
__global__ void __launch_bounds__(kThreads)
    long_kernel(const T* dy, std::int64_t n, int tiles, Groups groups, G* dweight) {
  using Sums = Pack<CudaAccumulator<T>, kPack>;
  __shared__ Sums shared[kWarps][32];
  wait_for_prior_kernels();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t items = std::int64_t{*groups.longs} * tiles;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int32_t token = groups.long_token[item / tiles];
    const std::int32_t count = groups.counts[token];
    const std::int32_t* order = groups.order + groups.long_start[item / tiles];
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
    // Warp 0 adds the sums of the warps in ascending order, whichever finished first.
    if (warp == 0 && at < n) {
      for (int other = 1; other < kWarps; ++other) {
#pragma unroll
        for (int k = 0; k < kPack; ++k) sum[k] += shared[other][lane][k];
      }
      auto& stored = *reinterpret_cast<Pack<G, kPack>*>(dweight + token * n + at);
#pragma unroll
      for (int k = 0; k < kPack; ++k) stored[k] = narrowed<G>(widened(stored[k]) + sum[k]);
    }
    __syncthreads();  // `shared` has been read
  }
}

// Launches the four kernels of the gradient. tokens: [rows], rows of the table.
template <class T, class G>
void gradient(const KernelCall& call, const std::int32_t* tokens) {
  const TensorView& dy = call.in(EmbeddingGradientIn::dy);
  const std::int64_t n = dy.row_size();
  const std::int64_t vocab = call.out(0).dim(0);
  const RowCount rows = row_count(dy);
  if (dy.elements() == 0) return;
  const cudaStream_t stream = stream_of(call);
  const Groups groups(call.workspace.data(), rows.capacity, vocab);
  const auto packs = static_cast<std::int64_t>(groups.zeroed() / sizeof(uint4));
  zero_kernel<<<static_cast<unsigned>(ceil_div(packs, kThreads)), kThreads, 0, stream>>>(
      reinterpret_cast<uint4*>(call.workspace.data()), packs);
  check_launch("embedding_gradient: zero");
  launch_dependent({static_cast<unsigned>(ceil_div(rows.capacity, kThreads)), kThreads}, stream, list_kernel, tokens,
                   rows, vocab, groups);
  with_pack<T>(n, [&]<int kPack>() {
    auto* dweight = cuda_data<G>(call.out(0));
    const std::int64_t threads = std::min<std::int64_t>(ceil_div(ceil_div(n, kPack), 32) * 32, kMostThreads);
    const std::int64_t longs = rows.capacity / (kLong + 1);
    launch_dependent({static_cast<unsigned>(longs + rows.capacity), static_cast<unsigned>(threads)}, stream,
                     short_kernel<T, G, kPack>, tokens, cuda_data<T>(dy), rows, n, vocab, static_cast<int>(longs),
                     groups, dweight);
    if (longs == 0) return;
    const std::int64_t tiles = ceil_div(n, 32 * kPack);
    const std::int64_t blocks = std::min(longs * tiles, kLongBlocks * cuda_device_of(call).sm_count());
    launch_dependent({static_cast<unsigned>(blocks), kThreads}, stream, long_kernel<T, G, kPack>, cuda_data<T>(dy), n,
                     static_cast<int>(tiles), groups, dweight);
  });
}

std::size_t workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  return Groups(nullptr, inputs[EmbeddingGradientIn::dy]->rows(), outputs[0].rows()).bytes();
}

template <class T>
void add_gradient(const KernelCall& call, const std::int32_t* tokens) {
  if (call.out(0).dtype() == DType::kBf16) return gradient<T, __nv_bfloat16>(call, tokens);
  gradient<T, CudaAccumulator<T>>(call, tokens);
}

// Writes the row of each token in a part of the vocabulary, or -1 if it is not there.
__global__ void __launch_bounds__(kThreads)
    part_rows_kernel(const std::int32_t* tokens, std::int64_t rows, std::int32_t first, std::int32_t count,
                     std::int32_t* part_rows) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows) return;
  const std::int32_t own = tokens[row] - first;
  part_rows[row] = own >= 0 && own < count ? own : -1;
}

// Fills [rows] numbers at `part_rows`. The kernels that read them start after the end of this one.
void take_part_rows(const KernelCall& call, const TensorView& tokens, std::int64_t vocab, std::int32_t* part_rows) {
  if (tokens.capacity() == 0) return;
  part_rows_kernel<<<static_cast<unsigned>(ceil_div(tokens.capacity(), kThreads)), kThreads, 0, stream_of(call)>>>(
      cuda_data<std::int32_t>(tokens), tokens.capacity(),
      static_cast<std::int32_t>(call.attributes_as<EmbeddingPartAttributes>().first), static_cast<std::int32_t>(vocab),
      part_rows);
  check_launch("embedding_part: rows");
}

std::size_t part_rows_bytes(const Type& tokens) { return align_up(tokens.bytes()); }

void part_forward(const KernelCall& call) {
  const TensorView& weight = call.in(EmbeddingIn::weight);
  TensorView rows = call.in(EmbeddingIn::tokens);
  take_part_rows(call, rows, weight.dim(0), reinterpret_cast<std::int32_t*>(call.workspace.data()));
  rows.data = call.workspace.data();
  launch_gather<false>(call, weight, rows, call.out(0));
}

// The rows are at the end of the workspace, behind that of the gradient. The first kernel of the gradient, which is
// launched after the end of take_part_rows(), precedes all that read them.
void part_gradient(const KernelCall& call) {
  const TensorView& tokens = call.in(EmbeddingGradientIn::tokens);
  auto* rows = reinterpret_cast<std::int32_t*>(call.workspace.last(part_rows_bytes(*tokens.type)).data());
  take_part_rows(call, tokens, call.out(0).dim(0), rows);
  for_cuda_floating(call.in(EmbeddingGradientIn::dy).dtype(), [&]<class T>() { add_gradient<T>(call, rows); });
}

}  // namespace

void register_embedding_cuda(KernelRegistry& registry) {
  registry.add("embedding", DeviceKind::kCuda, {forward, {}});
  registry.add("embedding_gradient", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(EmbeddingGradientIn::dy).dtype(), [&]<class T>() {
                    add_gradient<T>(call, cuda_data<std::int32_t>(call.in(EmbeddingGradientIn::tokens)));
                  });
                },
                workspace});
  registry.add("embedding_part", DeviceKind::kCuda,
               {part_forward, [](InputTypes inputs, std::span<const Type>, const Attributes&) {
                  return part_rows_bytes(*inputs[EmbeddingIn::tokens]);
                }});
  registry.add("embedding_part_gradient", DeviceKind::kCuda,
               {part_gradient, [](InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) {
                  return align_up(workspace(inputs, outputs, attributes)) +
                         part_rows_bytes(*inputs[EmbeddingGradientIn::tokens]);
                }});
}

}  // namespace hone
