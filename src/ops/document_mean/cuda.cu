#include "ops/cuda_kernel.cuh"
#include "ops/document_mean/document_mean.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// Mean of one document, which a block has. Thread t adds rows t, t + kThreads, ... in double; the threads' sums are
// added as a tree.
template <class T>
__global__ void __launch_bounds__(kThreads)
    mean_kernel(const T* x, const std::int32_t* member, const std::int32_t* cu_seqlens, std::int64_t capacity, T* y) {
  __shared__ double sums[32];
  __shared__ double counts[32];
  const std::int64_t begin = cu_seqlens[blockIdx.x];
  const std::int64_t end = cu_seqlens[blockIdx.x + 1];
  if (begin < 0 || end <= begin || end > capacity) return;
  double sum = 0;
  double count = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    if (member[i] < 0) continue;
    sum += static_cast<double>(x[i]);
    count += 1;
  }
  sum = block_sum(sum, sums);
  count = block_sum(count, counts);
  const T mean = static_cast<T>(sum / count);
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    if (member[i] >= 0) y[i] = mean;
  }
}

template <class T>
void forward(const KernelCall& call) {
  const TensorView& y = call.out(0);
  const std::int64_t documents = call.in(DocumentMeanIn::cu_seqlens).capacity() - 1;
  check_cuda(cudaMemsetAsync(y.data, 0, y.type->bytes(), stream_of(call)), "cudaMemset");
  if (documents <= 0) return;
  mean_kernel<T><<<static_cast<unsigned>(documents), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.in(DocumentMeanIn::x)), cuda_data<std::int32_t>(call.in(DocumentMeanIn::member)),
      cuda_data<std::int32_t>(call.in(DocumentMeanIn::cu_seqlens)), y.capacity(), cuda_data<T>(y));
  check_launch("document_mean");
}

}  // namespace

void register_document_mean_cuda(KernelRegistry& registry) {
  registry.add("document_mean", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  call.in(DocumentMeanIn::x).dtype() == DType::kF64 ? forward<double>(call) : forward<float>(call);
                },
                {}});
}

}  // namespace hone
