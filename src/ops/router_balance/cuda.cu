#include "ops/bisection.cuh"
#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"
#include "ops/router_balance/router_balance.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kChunk = 64;  // tokens whose probabilities are added together

// The segments of the tokens: documents, all of them together, or one of all tokens if cu_seqlens is null.
struct Segments {
  const std::int32_t* cu_seqlens;
  std::int64_t count;
  std::int64_t documents;  // of a segment
  RowCount rows;

  [[nodiscard]] __device__ std::int64_t begin(std::int64_t d) const {
    return cu_seqlens != nullptr ? cu_seqlens[d * documents] : 0;
  }
  [[nodiscard]] __device__ std::int64_t end(std::int64_t d) const {
    return cu_seqlens != nullptr ? cu_seqlens[(d + 1) * documents] : rows.get();
  }
};

// sums: has a row for each segment.
Segments segments_of(const TensorView& cu_seqlens, const TensorView& by_token, const TensorView& sums) {
  const std::int64_t count = sums.capacity();
  return {cu_seqlens ? cu_seqlens.as<std::int32_t>() : nullptr, count,
          cu_seqlens && count > 0 ? (cu_seqlens.capacity() - 1) / count : 1, row_count(by_token)};
}

// Segment d has the slots of chunks from begin(d) / kChunk + d on: at least as many as it has chunks, and none is
// shared. Their number does not depend on the segments.
__host__ __device__ std::int64_t slots_of(std::int64_t tokens, std::int64_t segments) {
  return tokens / kChunk + segments + 1;
}
__device__ std::int64_t first_slot(const Segments& segments, std::int64_t d) { return segments.begin(d) / kChunk + d; }

// The numbers by which logits become scores and probabilities: score = exp(logit - most), or the sigmoid; probability =
// score / sum.
template <class T>
struct RowNorm {
  T most, sum;
};

template <class T>
__device__ T score_of(T logit, bool sigmoid, T most) {
  return sigmoid ? T(1) / (T(1) + exp(-logit)) : exp(logit - most);
}

// A warp computes the norm of its row; every lane gets it.
template <class T>
__device__ RowNorm<T> norm_of(const T* logits, int experts, bool sigmoid) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  T most = logits[0];
  for (int e = lane; e < experts; e += 32) most = logits[e] > most ? logits[e] : most;
  most = warp_max(most);
  T sum = 0;
  for (int e = lane; e < experts; e += 32) sum += score_of(logits[e], sigmoid, most);
  sum = warp_sum(sum);
  return {most, sum > T(0) ? sum : T(1)};
}

// Sums of one chunk, in double: partial[slot] = choices [experts], probabilities [experts].
template <class T>
__global__ void __launch_bounds__(kThreads) chunk_kernel(const T* logits, const std::int32_t* expert, Segments segments,
                                                         int experts, int top_k, bool sigmoid, double* partial) {
  __shared__ RowNorm<T> norms[kChunk];
  const std::int64_t slot = blockIdx.x;
  const std::int64_t d =
      last_up_to(slot, segments.count, [&](std::int64_t each) { return first_slot(segments, each); });
  const std::int64_t begin = segments.begin(d) + (slot - first_slot(segments, d)) * kChunk;
  const std::int64_t end = segments.end(d);
  const int tokens = begin >= end ? 0 : static_cast<int>(end - begin < kChunk ? end - begin : kChunk);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int t = warp; t < tokens; t += kWarps) norms[t] = norm_of(logits + (begin + t) * experts, experts, sigmoid);
  __syncthreads();
  double* choices = partial + slot * 2 * experts;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads) {
    double sum = 0;
    for (int t = 0; t < tokens; ++t) {
      const T logit = logits[(begin + t) * experts + e];
      sum += static_cast<double>(score_of(logit, sigmoid, norms[t].most) / norms[t].sum);
    }
    int count = 0;
    for (std::int64_t i = begin * top_k; i < (begin + tokens) * top_k; ++i) count += expert[i] == e ? 1 : 0;
    choices[e] = count;
    choices[experts + e] = sum;
  }
}

// Adds the chunks of a segment in order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    total_kernel(const double* partial, Segments segments, int experts, T* sums) {
  const std::int64_t d = blockIdx.x;
  const std::int64_t chunks = (segments.end(d) - segments.begin(d) + kChunk - 1) / kChunk;
  const std::int64_t first = first_slot(segments, d);
  for (int i = static_cast<int>(threadIdx.x); i < 2 * experts; i += kThreads) {
    double total = 0;
    for (std::int64_t c = 0; c < chunks; ++c) total += partial[(first + c) * 2 * experts + i];
    sums[d * 2 * experts + i] = static_cast<T>(total);
  }
}

// One warp for each row; rows of no segment get zeros.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sums_backward_kernel(const T* dsums, const T* logits, Segments segments, int experts, bool sigmoid, T* dlogits) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= segments.rows.capacity) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t d = last_up_to(row, segments.count, [&](std::int64_t each) { return segments.begin(each); });
  logits += row * experts;
  dlogits += row * experts;
  if (row < segments.begin(d) || row >= segments.end(d)) {
    for (int e = lane; e < experts; e += 32) dlogits[e] = 0;
    return;
  }
  const T* g = dsums + d * 2 * experts + experts;
  const RowNorm<T> norm = norm_of(logits, experts, sigmoid);
  T mean = 0;
  for (int e = lane; e < experts; e += 32) mean += g[e] * (score_of(logits[e], sigmoid, norm.most) / norm.sum);
  mean = warp_sum(mean);
  for (int e = lane; e < experts; e += 32) {
    const T score = score_of(logits[e], sigmoid, norm.most);
    dlogits[e] = score / norm.sum * (sigmoid ? T(1) - score : T(1)) * (g[e] - mean);
  }
}

__device__ double scale_of(const RouterBalanceAttributes& a, int experts, std::int64_t tokens) {
  const double all = static_cast<double>(a.layers) * static_cast<double>(tokens);
  return a.factor * experts / (all * all);
}

// One block for each segment.
template <class T>
__global__ void __launch_bounds__(kThreads)
    balance_kernel(const T* sums, Segments segments, int experts, RouterBalanceAttributes a, T* term) {
  __shared__ double shared[32];
  const std::int64_t d = blockIdx.x;
  const std::int64_t begin = segments.begin(d);
  const std::int64_t end = segments.end(d);
  if (begin >= end) return;
  const T* choices = sums + d * 2 * experts;
  double sum = 0;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads) {
    sum += static_cast<double>(choices[e]) * static_cast<double>(choices[experts + e]);
  }
  sum = block_sum(sum, shared);
  const T value = static_cast<T>(scale_of(a, experts, end - begin) * sum);
  for (std::int64_t t = begin + threadIdx.x; t < end; t += kThreads) term[t] = value;
}

template <class T>
__global__ void __launch_bounds__(kThreads) balance_backward_kernel(const T* dterm, const T* sums, Segments segments,
                                                                    int experts, RouterBalanceAttributes a, T* dsums) {
  __shared__ double shared[32];
  const std::int64_t d = blockIdx.x;
  const std::int64_t begin = segments.begin(d);
  const std::int64_t end = segments.end(d);
  double sum = 0;
  for (std::int64_t t = begin + threadIdx.x; t < end; t += kThreads) sum += static_cast<double>(dterm[t]);
  sum = block_sum(sum, shared);
  const double scale = begin < end ? sum * scale_of(a, experts, end - begin) : 0.0;
  sums += d * 2 * experts;
  dsums += d * 2 * experts;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads) {
    dsums[e] = 0;
    dsums[experts + e] = static_cast<T>(scale * static_cast<double>(sums[e]));
  }
}

std::size_t sums_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  const std::int64_t slots = slots_of(inputs[RouterSumsIn::logits]->rows(), outputs[0].rows());
  return static_cast<std::size_t>(slots * outputs[0].row_size()) * sizeof(double);
}

template <class T>
void sums_forward(const KernelCall& call) {
  const TensorView& logits = call.in(RouterSumsIn::logits);
  const TensorView& expert = call.in(RouterSumsIn::expert);
  const Segments segments = segments_of(call.in(RouterSumsIn::cu_seqlens), logits, call.out(0));
  const int experts = static_cast<int>(logits.row_size());
  auto* partial = reinterpret_cast<double*>(call.workspace.data());
  if (segments.count <= 0) return;
  chunk_kernel<T><<<static_cast<unsigned>(slots_of(logits.capacity(), segments.count)), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(logits), expert.as<std::int32_t>(), segments, experts, static_cast<int>(expert.row_size()),
      call.attributes_as<RouterSumsAttributes>().sigmoid, partial);
  check_launch("router_sums");
  total_kernel<T><<<static_cast<unsigned>(segments.count), kThreads, 0, stream_of(call)>>>(partial, segments, experts,
                                                                                           cuda_data<T>(call.out(0)));
  check_launch("router_sums");
}

template <class T>
void sums_backward(const KernelCall& call) {
  const TensorView& logits = call.in(RouterSumsBackwardIn::logits);
  if (logits.capacity() == 0) return;
  sums_backward_kernel<T><<<static_cast<unsigned>(ceil_div(logits.capacity(), kWarps)), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.in(RouterSumsBackwardIn::dsums)), cuda_data<T>(logits),
      segments_of(call.in(RouterSumsBackwardIn::cu_seqlens), logits, call.in(RouterSumsBackwardIn::dsums)),
      static_cast<int>(logits.row_size()), call.attributes_as<RouterSumsAttributes>().sigmoid,
      cuda_data<T>(call.out(0)));
  check_launch("router_sums_backward");
}

template <class T>
void balance_forward(const KernelCall& call) {
  const TensorView& term = call.out(0);
  const TensorView& sums = call.in(RouterBalanceIn::sums);
  const Segments segments = segments_of(call.in(RouterBalanceIn::cu_seqlens), term, sums);
  check_cuda(cudaMemsetAsync(term.data, 0, term.type->bytes(), stream_of(call)), "cudaMemset");
  if (segments.count <= 0) return;
  balance_kernel<T><<<static_cast<unsigned>(segments.count), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(sums), segments, static_cast<int>(sums.row_size() / 2),
      call.attributes_as<RouterBalanceAttributes>(), cuda_data<T>(term));
  check_launch("router_balance");
}

template <class T>
void balance_backward(const KernelCall& call) {
  const TensorView& dterm = call.in(RouterBalanceBackwardIn::dterm);
  const TensorView& sums = call.in(RouterBalanceBackwardIn::sums);
  const Segments segments = segments_of(call.in(RouterBalanceBackwardIn::cu_seqlens), dterm, sums);
  if (segments.count <= 0) return;
  balance_backward_kernel<T><<<static_cast<unsigned>(segments.count), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(dterm), cuda_data<T>(sums), segments, static_cast<int>(sums.row_size() / 2),
      call.attributes_as<RouterBalanceAttributes>(), cuda_data<T>(call.out(0)));
  check_launch("router_balance_backward");
}

using Run = void (*)(const KernelCall&);

Kernel kernel_by_output(Run in_f32, Run in_f64) {
  return {[=](const KernelCall& call) { call.out(0).dtype() == DType::kF64 ? in_f64(call) : in_f32(call); }, {}};
}

}  // namespace

void register_router_balance_cuda(KernelRegistry& registry) {
  Kernel sums = kernel_by_output(sums_forward<float>, sums_forward<double>);
  sums.workspace = sums_workspace;
  registry.add("router_sums", DeviceKind::kCuda, std::move(sums));
  registry.add("router_sums_backward", DeviceKind::kCuda,
               kernel_by_output(sums_backward<float>, sums_backward<double>));
  registry.add("router_balance", DeviceKind::kCuda, kernel_by_output(balance_forward<float>, balance_forward<double>));
  registry.add("router_balance_backward", DeviceKind::kCuda,
               kernel_by_output(balance_backward<float>, balance_backward<double>));
}

}  // namespace hone
