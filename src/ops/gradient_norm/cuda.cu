#include <algorithm>
#include <optional>

#include "backend/collective.h"
#include "backend/cuda/check.h"
#include "ops/cuda_kernel.cuh"
#include "ops/gradient_norm/groups.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 8;                   // packs that a thread has in flight
constexpr std::int64_t kBlock = kNormBlock;  // elements of a block; fixes the order of the sum
constexpr int kGradients = 256;              // tensors of a launch at most
constexpr int kSumThreads = 1024;

// The tensors of a launch. Blocks first_block[i] .. first_block[i + 1] - 1 have tensor i.
struct Batch {
  const void* data[kGradients];
  DType dtype[kGradients];
  RowCount rows[kGradients];
  std::int64_t row_size[kGradients];
  std::int64_t first_block[kGradients + 1];
  int count;
};

template <class T, int kPack>
__device__ void add_squares(const Pack<T, kPack>& values, double (&sums)[kPack]) {
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    const auto value = static_cast<double>(widened(values[k]));
    sums[k] = fma(value, value, sums[k]);
  }
}

// This thread's part of the sum of squares over [begin, end).
template <class T>
__device__ double squares_of(const T* values, std::int64_t begin, std::int64_t end) {
  constexpr int kPack = kPackSize<T>;
  double lanes[kPack]{};
  std::int64_t at = begin + static_cast<int>(threadIdx.x) * kPack;
  constexpr int kStride = kThreads * kPack;
  for (; at + (kUnroll - 1) * kStride + kPack <= end; at += kUnroll * kStride) {
    Pack<T, kPack> held[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) held[i] = *reinterpret_cast<const Pack<T, kPack>*>(values + at + i * kStride);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) add_squares(held[i], lanes);
  }
  for (; at + kPack <= end; at += kStride) add_squares(*reinterpret_cast<const Pack<T, kPack>*>(values + at), lanes);
  if (at < end) {
    Pack<T, kPack> rest{};
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      if (at + k < end) rest[k] = values[at + k];
    }
    add_squares(rest, lanes);
  }
  double mine = 0;
#pragma unroll
  for (int k = 0; k < kPack; ++k) mine += lanes[k];
  return mine;
}

// Block b writes the sum of squares of its kBlock elements to sums[b]. The launch bound of two blocks on an SM limits
// registers: two blocks have more loads in flight than one with as many registers as the compiler would choose.
__global__ void __launch_bounds__(kThreads, 2) squares_kernel(const __grid_constant__ Batch batch, double* sums) {
  __shared__ double shared[32];
  const std::int64_t block = blockIdx.x;
  int which = 0;
  for (int step = kGradients / 2; step > 0; step /= 2) {
    if (which + step < batch.count && batch.first_block[which + step] <= block) which += step;
  }
  const std::int64_t used = batch.rows[which].get() * batch.row_size[which];
  const std::int64_t begin = (block - batch.first_block[which]) * kBlock;
  const std::int64_t end = begin + kBlock < used ? begin + kBlock : used;
  const void* data = batch.data[which];
  double mine = 0;
  switch (batch.dtype[which]) {
    case DType::kBf16:
      mine = squares_of(static_cast<const __nv_bfloat16*>(data), begin, end);
      break;
    case DType::kF32:
      mine = squares_of(static_cast<const float*>(data), begin, end);
      break;
    default:
      mine = squares_of(static_cast<const double*>(data), begin, end);
      break;
  }
  const double total = block_sum(mine, shared);
  if (threadIdx.x == 0) sums[block] = total;
}

// Writes the root of the sum of all blocks' sums. Launched as one block: thread t adds sums t, t + kSumThreads, ... in
// order; the threads' sums are added as a tree.
template <class A>
__global__ void __launch_bounds__(kSumThreads) root_kernel(const double* sums, std::int64_t count, A* norm) {
  __shared__ double shared[32];
  double mine = 0;
#pragma unroll 8
  for (std::int64_t i = threadIdx.x; i < count; i += kSumThreads) mine += sums[i];
  const double total = block_sum(mine, shared);
  if (threadIdx.x == 0) *norm = static_cast<A>(sqrt(total));
}

std::int64_t blocks_of(const Type& type) { return ceil_div(type.elements(), kBlock); }

void add_tensor(Batch& batch, const TensorView& gradient) {
  const int at = batch.count++;
  batch.data[at] = gradient.data;
  batch.dtype[at] = gradient.dtype();
  batch.rows[at] = row_count(gradient);
  batch.row_size[at] = gradient.row_size();
  batch.first_block[at + 1] = batch.first_block[at] + blocks_of(*gradient.type);
}

// Launches the sums of a batch's blocks and returns their number.
std::int64_t launch_squares(const KernelCall& call, const Batch& batch, double* sums) {
  const std::int64_t blocks = batch.first_block[batch.count];
  if (blocks == 0) return 0;
  squares_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call)>>>(batch, sums);
  check_launch("gradient_norm");
  return blocks;
}

std::int64_t sum_whole(const KernelCall& call, double* sums) {
  std::int64_t blocks = 0;
  for (std::size_t i = 0; i < call.inputs.size();) {
    Batch batch{};
    for (; i < call.inputs.size() && batch.count < kGradients; ++i) add_tensor(batch, call.in(i));
    blocks += launch_squares(call, batch, sums + blocks);
  }
  return blocks;
}

std::int64_t sum_divided(const KernelCall& call, double* sums, const GradientNormAttributes& division) {
  const std::vector<std::int64_t> firsts = block_numbers(division.firsts);
  const NormGroups groups(division);
  const std::size_t blocks = divided_blocks(division);
  check_cuda(cudaMemsetAsync(sums, 0, blocks * sizeof(double), stream_of(call)), "cudaMemset");
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (!groups.counts(i)) continue;
    Batch batch{};
    add_tensor(batch, call.in(i));
    (void)launch_squares(call, batch, sums + firsts[i]);
  }
  groups.add_up(call.workspace.data(), blocks);
  return static_cast<std::int64_t>(blocks);
}

void forward(const KernelCall& call) {
  const auto& division = call.attributes_as<GradientNormAttributes>();
  auto* sums = reinterpret_cast<double*>(call.workspace.data());
  const std::int64_t blocks = division.blocks.empty() ? sum_whole(call, sums) : sum_divided(call, sums, division);
  if (call.out(0).dtype() == DType::kF64) {
    root_kernel<<<1, kSumThreads, 0, stream_of(call)>>>(sums, blocks, cuda_data<double>(call.out(0)));
  } else {
    root_kernel<<<1, kSumThreads, 0, stream_of(call)>>>(sums, blocks, cuda_data<float>(call.out(0)));
  }
  check_launch("gradient_norm: sum");
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  auto blocks = static_cast<std::int64_t>(divided_blocks(attributes.as<GradientNormAttributes>()));
  if (blocks == 0) {
    for (const std::optional<Type>& input : inputs) blocks += blocks_of(*input);
  }
  return static_cast<std::size_t>(std::max<std::int64_t>(blocks, 1)) * sizeof(double);
}

}  // namespace

void register_gradient_norm_cuda(KernelRegistry& registry) {
  registry.add("gradient_norm", DeviceKind::kCuda, {forward, workspace});
}

}  // namespace hone
