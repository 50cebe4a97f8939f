#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"
#include "ops/router/router.h"

namespace hone {
namespace {

constexpr int kLanes = 32;           // one warp for each token
constexpr double kLeastSum = 1e-20;  // as on the CPU

// The attributes as kernels take them.
struct Choice {
  int experts, top_k, groups, top_groups, group_depth;
  bool sigmoid, normalize;
  double factor;
};

Choice choice_of(const KernelCall& call, std::int64_t experts) {
  const auto& a = call.attributes_as<RouterAttributes>();
  return {static_cast<int>(experts),
          static_cast<int>(a.top_k),
          static_cast<int>(a.groups),
          static_cast<int>(a.top_groups),
          static_cast<int>(a.group_depth),
          a.sigmoid,
          a.normalize,
          a.factor};
}

// Returns true if score x of index i comes before score y of index j: the higher first, of equal ones the lower index,
// NaN last. An index of -1 is none and comes after every other.
template <class T>
__device__ bool comes_before(T x, int i, T y, int j) {
  if (i < 0 || j < 0) return j < 0 && i >= 0;
  const bool x_is_nan = x != x;
  const bool y_is_nan = y != y;
  if (x_is_nan != y_is_nan) return y_is_nan;
  return x > y || (!(x < y) && i < j);
}

// Index of the first score in [begin, end) whose state is `open`; every lane gets it.
template <class T>
__device__ int first_of(const T* scores, const unsigned char* states, unsigned char open, int begin, int end) {
  int best = -1;
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kLanes) {
    if (states[i] == open && comes_before(scores[i], i, scores[best < 0 ? 0 : best], best)) best = i;
  }
#pragma unroll
  for (int lane = kLanes / 2; lane > 0; lane /= 2) {
    const int other = __shfl_xor_sync(0xFFFFFFFFu, best, lane);
    if (comes_before(scores[other < 0 ? 0 : other], other, scores[best < 0 ? 0 : best], best)) best = other;
  }
  return best;
}

// Sets one state, with all lanes in step.
__device__ void set_state(unsigned char* states, int at, unsigned char state) {
  __syncwarp();
  if (threadIdx.x == 0) states[at] = state;
  __syncwarp();
}

template <class T>
__device__ void compute_scores(const T* logits, const Choice& c, T* scores) {
  if (c.sigmoid) {
    for (int e = static_cast<int>(threadIdx.x); e < c.experts; e += kLanes) scores[e] = T(1) / (T(1) + exp(-logits[e]));
    return __syncwarp();
  }
  T most = logits[0];
  for (int e = static_cast<int>(threadIdx.x); e < c.experts; e += kLanes) most = logits[e] > most ? logits[e] : most;
  most = warp_max(most);
  T sum = 0;
  for (int e = static_cast<int>(threadIdx.x); e < c.experts; e += kLanes) {
    scores[e] = exp(logits[e] - most);
    sum += scores[e];
  }
  sum = warp_sum(sum);
  for (int e = static_cast<int>(threadIdx.x); e < c.experts; e += kLanes) scores[e] /= sum;
  __syncwarp();
}

constexpr unsigned char kClosed = 0, kOpen = 1, kRanked = 2;

// Opens the experts of the best groups: states become kOpen there and kClosed elsewhere.
template <class T>
__device__ void open_groups(const T* ranked, const Choice& c, T* group_scores, unsigned char* states,
                            unsigned char* group_states) {
  const int size = c.experts / c.groups;
  for (int e = static_cast<int>(threadIdx.x); e < c.experts; e += kLanes) states[e] = kOpen;
  __syncwarp();
  for (int g = 0; g < c.groups; ++g) {
    T sum = 0;
    for (int i = 0; i < c.group_depth; ++i) {
      const int best = first_of(ranked, states, kOpen, g * size, (g + 1) * size);
      sum += ranked[best];
      set_state(states, best, kRanked);
    }
    if (threadIdx.x == 0) group_scores[g] = sum;
    set_state(group_states, g, kOpen);
  }
  for (int i = 0; i < c.top_groups; ++i) {
    set_state(group_states, first_of(group_scores, group_states, kOpen, 0, c.groups), kRanked);
  }
  for (int e = static_cast<int>(threadIdx.x); e < c.experts; e += kLanes) {
    states[e] = group_states[e / size] == kRanked ? kOpen : kClosed;
  }
  __syncwarp();
}

// Shared memory: scores and ranked scores of all experts, scores of groups, states of experts and of groups.
template <class T>
std::size_t shared_bytes(const Choice& c) {
  return (2 * c.experts + c.groups) * sizeof(T) + c.experts + c.groups;
}

template <class T>
__global__ void __launch_bounds__(kLanes)
    router_kernel(const T* logits, const T* bias, RowCount rows, Choice c, std::int32_t* expert, T* weight) {
  extern __shared__ __align__(16) unsigned char memory[];
  T* scores = reinterpret_cast<T*>(memory);
  T* ranked = scores + c.experts;
  T* group_scores = ranked + c.experts;
  auto* states = reinterpret_cast<unsigned char*>(group_scores + c.groups);
  const std::int64_t row = blockIdx.x;
  expert += row * c.top_k;
  weight += row * c.top_k;
  if (row >= rows.get()) {
    for (int j = static_cast<int>(threadIdx.x); j < c.top_k; j += kLanes) {
      expert[j] = 0;
      weight[j] = 0;
    }
    return;
  }
  compute_scores(logits + row * c.experts, c, scores);
  for (int e = static_cast<int>(threadIdx.x); e < c.experts; e += kLanes) {
    ranked[e] = bias != nullptr ? scores[e] + bias[e] : scores[e];
  }
  __syncwarp();
  open_groups(ranked, c, group_scores, states, states + c.experts);
  T sum = 0;
  for (int j = 0; j < c.top_k; ++j) {
    const int best = first_of(ranked, states, kOpen, 0, c.experts);
    sum += scores[best];
    if (threadIdx.x == 0) expert[j] = best;
    set_state(states, best, kClosed);
  }
  if (threadIdx.x != 0) return;
  const T least = static_cast<T>(kLeastSum);
  const T scale = static_cast<T>(c.factor) / (c.normalize ? (sum < least ? least : sum) : T(1));
  for (int j = 0; j < c.top_k; ++j) weight[j] = scores[expert[j]] * scale;
}

template <class T>
__global__ void __launch_bounds__(kLanes)
    router_backward_kernel(const T* dweight, const T* logits, const std::int32_t* expert, RowCount rows, Choice c,
                           T* dlogits) {
  extern __shared__ __align__(16) unsigned char memory[];
  T* scores = reinterpret_cast<T*>(memory);
  const std::int64_t row = blockIdx.x;
  dlogits += row * c.experts;
  for (int e = static_cast<int>(threadIdx.x); e < c.experts; e += kLanes) dlogits[e] = 0;
  if (row >= rows.get()) return;
  compute_scores(logits + row * c.experts, c, scores);
  dweight += row * c.top_k;
  expert += row * c.top_k;
  T sum = 0;
  T dot = 0;
  for (int j = 0; j < c.top_k; ++j) {
    sum += scores[expert[j]];
    dot += dweight[j] * scores[expert[j]];
  }
  const T least = static_cast<T>(kLeastSum);
  const T divisor = c.normalize ? (sum < least ? least : sum) : T(1);
  const T mean = c.normalize ? dot / divisor : T(0);
  const T factor = static_cast<T>(c.factor) / divisor;
  T inner = 0;
  for (int j = 0; j < c.top_k; ++j) inner += scores[expert[j]] * (factor * (dweight[j] - mean));
  __syncwarp();
  if (threadIdx.x == 0) {
    for (int j = 0; j < c.top_k; ++j) dlogits[expert[j]] = factor * (dweight[j] - mean);
  }
  __syncwarp();
  for (int e = static_cast<int>(threadIdx.x); e < c.experts; e += kLanes) {
    dlogits[e] = scores[e] * (c.sigmoid ? (T(1) - scores[e]) * dlogits[e] : dlogits[e] - inner);
  }
}

template <class T>
void forward(const KernelCall& call) {
  const TensorView& logits = call.in(RouterIn::logits);
  if (logits.capacity() == 0) return;
  const Choice c = choice_of(call, logits.row_size());
  router_kernel<T><<<static_cast<unsigned>(logits.capacity()), kLanes, shared_bytes<T>(c), stream_of(call)>>>(
      cuda_data<T>(logits), cuda_data<T>(call.in(RouterIn::bias)), row_count(logits), c,
      call.out(RouterOut::expert).as<std::int32_t>(), cuda_data<T>(call.out(RouterOut::weight)));
  check_launch("router");
}

template <class T>
void backward(const KernelCall& call) {
  const TensorView& logits = call.in(RouterBackwardIn::logits);
  if (logits.capacity() == 0) return;
  const Choice c = choice_of(call, logits.row_size());
  router_backward_kernel<T>
      <<<static_cast<unsigned>(logits.capacity()), kLanes, c.experts * sizeof(T), stream_of(call)>>>(
          cuda_data<T>(call.in(RouterBackwardIn::dweight)), cuda_data<T>(logits),
          call.in(RouterBackwardIn::expert).as<std::int32_t>(), row_count(logits), c, cuda_data<T>(call.out(0)));
  check_launch("router_backward");
}

}  // namespace

void register_router_cuda(KernelRegistry& registry) {
  registry.add("router", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  call.in(RouterIn::logits).dtype() == DType::kF64 ? forward<double>(call) : forward<float>(call);
                },
                {}});
  registry.add("router_backward", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  call.in(RouterBackwardIn::logits).dtype() == DType::kF64 ? backward<double>(call)
                                                                           : backward<float>(call);
                },
                {}});
}

}  // namespace hone
