// RMS norm of each query and key head on a GPU. A group of up to 32 lanes of a warp holds one head in registers.
#include <algorithm>
#include <limits>

#include "core/error.h"
#include "ops/column_sum.cuh"
#include "ops/qk_norm/parts.h"
#include "ops/qk_norm/qk_norm.h"
#include "ops/registry.h"
#include "ops/slices.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// Sum over the `group` lanes, a power of two, that share a head, by a fixed tree; each of them gets it.
template <class A>
__device__ A group_sum(A value, int group) {
  for (int lane = group / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, lane);
  return value;
}

// The part of a head that a lane holds: kHeld packs, `group` packs apart; zero past the head's end.
template <class T, int kPack, int kHeld>
struct HeldHead {
  Pack<T, kPack> packs[kHeld];

  __device__ void load(const T* head, int packs_a_head, int lane, int group) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int i = lane + h * group;
      packs[h] = i < packs_a_head ? reinterpret_cast<const Pack<T, kPack>*>(head)[i] : Pack<T, kPack>{};
    }
  }
  __device__ void store(T* head, int packs_a_head, int lane, int group) const {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int i = lane + h * group;
      if (i < packs_a_head) reinterpret_cast<Pack<T, kPack>*>(head)[i] = packs[h];
    }
  }
  [[nodiscard]] __device__ CudaAccumulator<T> at(int h, int k) const { return widened(packs[h][k]); }
  __device__ void set(int h, int k, CudaAccumulator<T> value) { packs[h][k] = narrowed<T>(value); }
};

// Calls body.operator()<kPack, kHeld>(group) for heads of head_dim elements. A lane holds kWanted packs, or 4 if 32
// lanes do not suffice otherwise. Several packs to a lane pay because the sum over a head, its root and its inverse
// cost as much as some packs. Throws Error if 32 lanes with 4 packs do not hold a head.
template <class T, int kWanted, class Body>
void with_held_head(std::int64_t head_dim, const Body& body) {
  with_pack<T>(head_dim, [&]<int kPack>() {
    const std::int64_t packs = head_dim / kPack;
    int group = 1;
    while (group < 32 && group * kWanted < packs) group *= 2;
    if (packs <= group * kWanted) {
      body.template operator()<kPack, kWanted>(group);
    } else if (packs <= 32 * 4) {
      body.template operator()<kPack, 4>(32);
    } else {
      throw Error("qk_norm", text_of("heads of ", head_dim, " elements are longer than the CUDA kernels hold"),
                  "use a smaller head_dim, a multiple of 8");
    }
  });
}

struct Heads {
  int normed;   // number of query and key heads
  int queries;  // number of query heads
  int all;      // number of all heads, with the value heads
  int head_dim;
};

Heads heads_of(const QkNormAttributes& a) {
  return {static_cast<int>(a.heads + a.kv_heads), static_cast<int>(a.heads), static_cast<int>(a.heads + 2 * a.kv_heads),
          static_cast<int>(a.head_dim)};
}

// The head of a group of lanes. The heads of all rows are consecutive in memory, and each group takes one.
template <class T, int kPack, int kHeld>
struct Place {
  using Held = HeldHead<T, kPack, kHeld>;
  std::int64_t row;
  std::int64_t at;  // the head's first element
  int head;         // index of the head in its row
  int lane, group, packs;

  static unsigned blocks(std::int64_t rows, const Heads& heads, int group) {
    const std::int64_t all = rows * heads.all;
    if (all > std::numeric_limits<std::uint32_t>::max() - kThreads) {
      throw Error("qk_norm", text_of(rows, " rows of ", heads.all, " heads are more than one launch can process"),
                  "use smaller micro-batches");
    }
    return static_cast<unsigned>(ceil_div(all, kThreads / group));
  }

  __device__ Place(const Heads& heads, int group_)
      : lane(static_cast<int>(threadIdx.x) % group_), group(group_), packs(heads.head_dim / kPack) {
    const std::uint32_t item = blockIdx.x * static_cast<std::uint32_t>(kThreads / group) + threadIdx.x / group;
    const std::uint32_t whole = item / static_cast<std::uint32_t>(heads.all);
    row = whole;
    at = static_cast<std::int64_t>(item) * heads.head_dim;
    head = static_cast<int>(item - whole * static_cast<std::uint32_t>(heads.all));
  }
  // This lane's part of the head at `from`, or zeros if it is not `wanted`.
  [[nodiscard]] __device__ Held load(const T* from, bool wanted) const {
    Held held{};
    if (wanted) held.load(from, packs, lane, group);
    return held;
  }
  __device__ void store(const Held& held, T* to) const { held.store(to, packs, lane, group); }
};

template <class T, int kPack, int kHeld>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const T* qkv, const T* q_weight, const T* k_weight, RowCount rows, Heads heads,
                   CudaAccumulator<T> epsilon, int group, T* y, CudaAccumulator<T>* rstds) {
  using A = CudaAccumulator<T>;
  const Place<T, kPack, kHeld> place(heads, group);
  const bool exists = place.row < rows.capacity;
  const bool normed = place.head < heads.normed;
  begin_dependent_kernel();
  // One thread reads the count while the heads are being loaded, which is safe because there is memory for every row.
  __shared__ std::int64_t used;
  if (threadIdx.x == 0) used = rows.get();
  auto x = place.load(qkv + place.at, exists);
  const auto weight = place.load(place.head < heads.queries ? q_weight : k_weight, normed);
  __syncthreads();
  A squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) squares += x.at(h, k) * x.at(h, k);
  }
  squares = group_sum(squares, group);
  if (!exists) return;
  A rstd = A(1) / sqrt(squares / static_cast<A>(heads.head_dim) + epsilon);
  if (place.row >= used) {
    x = {};
    rstd = 0;
  } else if (normed) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) x.set(h, k, x.at(h, k) * rstd * weight.at(h, k));
    }
  }
  if (place.lane == 0 && normed) rstds[place.row * heads.normed + place.head] = rstd;
  place.store(x, y + place.at);
}

template <class T, int kPack, int kHeld>
__global__ void __launch_bounds__(kThreads)
    input_gradient_kernel(const T* dys, const T* qkv, const T* q_weight, const T* k_weight,
                          const CudaAccumulator<T>* rstds, RowCount rows, Heads heads, int group, T* dqkv) {
  using A = CudaAccumulator<T>;
  const Place<T, kPack, kHeld> place(heads, group);
  const bool exists = place.row < rows.capacity;
  const bool normed = exists && place.head < heads.normed;
  __shared__ std::int64_t used;
  if (threadIdx.x == 0) used = rows.get();
  auto dy = place.load(dys + place.at, exists);
  const auto x = place.load(qkv + place.at, normed);
  const A rstd = normed ? rstds[place.row * heads.normed + place.head] : A(0);
  const auto weight = place.load(place.head < heads.queries ? q_weight : k_weight, normed);
  __syncthreads();
  A dot = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) dot += dy.at(h, k) * weight.at(h, k) * x.at(h, k);
  }
  const A scale = group_sum(dot, group) * rstd * rstd / static_cast<A>(heads.head_dim);
  if (!exists) return;
  if (place.row >= used) {
    dy = {};
  } else if (normed) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        dy.set(h, k, rstd * (dy.at(h, k) * weight.at(h, k) - x.at(h, k) * scale));
      }
    }
  }
  place.store(dy, dqkv + place.at);
}

// The heads of a row that share a weight, and the layout of a row.
struct Part {
  std::int64_t row_size;
  int normed, first_head, heads, head_dim;
};

// Partial sums of a weight's gradient. Block b has rows b, b + slices, ...; its groups of lanes take their heads in
// turn, and then the sums of the groups are added in order.
template <class T, int kPack, int kHeld>
__global__ void __launch_bounds__(kThreads)
    weight_gradient_kernel(const T* dys, const T* qkv, const CudaAccumulator<T>* rstds, RowCount rows, Part part,
                           int group, CudaAccumulator<T>* partials) {
  using A = CudaAccumulator<T>;
  __shared__ A shared[kThreads * kPack * kHeld];  // [groups, head_dim]
  const std::int64_t used = rows.get();
  const int packs = part.head_dim / kPack;
  const int lane = static_cast<int>(threadIdx.x) % group;
  const int mine = static_cast<int>(threadIdx.x) / group;
  const int groups = kThreads / group;
  A sums[kHeld][kPack]{};
  const std::int64_t turns = blockIdx.x < used ? ceil_div(used - blockIdx.x, gridDim.x) : 0;
  const int items = static_cast<int>(turns) * part.heads;
  for (int item = mine; item < items; item += groups) {
    const int turn = item / part.heads;
    const std::int64_t row = blockIdx.x + static_cast<std::int64_t>(turn) * gridDim.x;
    const int head = part.first_head + item - turn * part.heads;
    const std::int64_t at = row * part.row_size + static_cast<std::int64_t>(head) * part.head_dim;
    HeldHead<T, kPack, kHeld> dy;
    HeldHead<T, kPack, kHeld> x;
    dy.load(dys + at, packs, lane, group);
    x.load(qkv + at, packs, lane, group);
    const A rstd = rstds[row * part.normed + head];
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) sums[h][k] += dy.at(h, k) * x.at(h, k) * rstd;
    }
  }
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = lane + h * group;
    if (i >= packs) continue;
#pragma unroll
    for (int k = 0; k < kPack; ++k) shared[mine * part.head_dim + i * kPack + k] = sums[h][k];
  }
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < part.head_dim; column += kThreads) {
    A sum = 0;
    for (int other = 0; other < groups; ++other) sum += shared[other * part.head_dim + column];
    partials[static_cast<std::int64_t>(blockIdx.x) * part.head_dim + column] = sum;
  }
}

template <class T>
void forward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& qkv = call.in(QkNormIn::qkv);
  const auto& a = call.attributes_as<QkNormAttributes>();
  if (qkv.capacity() == 0) return;
  with_held_head<T, 2>(a.head_dim, [&]<int kPack, int kHeld>(int group) {
    launch_dependent({Place<T, kPack, kHeld>::blocks(qkv.capacity(), heads_of(a), group), kThreads}, stream_of(call),
                     forward_kernel<T, kPack, kHeld>, cuda_data<T>(qkv), cuda_data<T>(call.in(QkNormIn::q_weight)),
                     cuda_data<T>(call.in(QkNormIn::k_weight)), row_count(qkv), heads_of(a), static_cast<A>(a.epsilon),
                     group, cuda_data<T>(call.out(QkNormOut::y)), cuda_data<A>(call.out(QkNormOut::rstd)));
  });
  check_launch("qk_norm");
}

template <class T>
void input_gradient(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& qkv = call.in(QkNormInputGradientIn::qkv);
  const auto& a = call.attributes_as<QkNormAttributes>();
  if (qkv.capacity() == 0) return;
  with_held_head<T, 4>(a.head_dim, [&]<int kPack, int kHeld>(int group) {
    input_gradient_kernel<T, kPack, kHeld>
        <<<Place<T, kPack, kHeld>::blocks(qkv.capacity(), heads_of(a), group), kThreads, 0, stream_of(call)>>>(
            cuda_data<T>(call.in(QkNormInputGradientIn::dy)), cuda_data<T>(qkv),
            cuda_data<T>(call.in(QkNormInputGradientIn::q_weight)),
            cuda_data<T>(call.in(QkNormInputGradientIn::k_weight)), cuda_data<A>(call.in(QkNormInputGradientIn::rstd)),
            row_count(qkv), heads_of(a), group, cuda_data<T>(call.out(0)));
  });
  check_launch("qk_norm_input_gradient");
}

std::int64_t slices_of(std::int64_t rows) { return std::min<std::int64_t>(rows, kReductionSms * 6); }

template <class T>
void weight_gradient(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& qkv = call.in(QkNormWeightGradientIn::qkv);
  const auto& a = call.attributes_as<QkNormWeightAttributes>();
  const std::int64_t head_dim = call.out(0).elements();
  const std::int64_t slices = slices_of(qkv.capacity());
  if (slices == 0 || a.heads == 0) return;
  auto* partials = reinterpret_cast<A*>(call.workspace.data());
  with_held_head<T, 2>(head_dim, [&]<int kPack, int kHeld>(int group) {
    const Part part{qkv.row_size(), static_cast<int>(call.in(QkNormWeightGradientIn::rstd).row_size()),
                    static_cast<int>(a.first_head), static_cast<int>(a.heads), static_cast<int>(head_dim)};
    weight_gradient_kernel<T, kPack, kHeld><<<static_cast<unsigned>(slices), kThreads, 0, stream_of(call)>>>(
        cuda_data<T>(call.in(QkNormWeightGradientIn::dy)), cuda_data<T>(qkv),
        cuda_data<A>(call.in(QkNormWeightGradientIn::rstd)), row_count(qkv), part, group, partials);
  });
  check_launch("qk_norm_weight_gradient");
  add_column_sums(call, partials, slices, head_dim, cuda_data<A>(call.out(0)));
}

std::size_t weight_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  return static_cast<std::size_t>(slices_of(inputs[QkNormWeightGradientIn::qkv]->rows())) * outputs[0].bytes();
}

}  // namespace

void register_qk_norm_cuda(KernelRegistry& registry) {
  registry.add("qk_norm", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(QkNormIn::qkv).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
  registry.add("qk_norm_input_gradient", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(QkNormInputGradientIn::dy).dtype(),
                                    [&]<class T>() { input_gradient<T>(call); });
                },
                {}});
  registry.add("qk_norm_weight_gradient", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(QkNormWeightGradientIn::dy).dtype(),
                                    [&]<class T>() { weight_gradient<T>(call); });
                },
                weight_workspace});
}

}  // namespace hone
