#include "ops/bisection.cuh"
#include "ops/cuda_kernel.cuh"
#include "ops/next_in_document/next_in_document.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// A token is the last of its document if the next one begins a document.
__global__ void __launch_bounds__(kThreads)
    next_in_document_kernel(const std::int32_t* x, const std::int32_t* cu_seqlens, std::int64_t documents,
                            std::int64_t capacity, std::int32_t last, std::int32_t* y) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (t >= capacity) return;
  if (t < cu_seqlens[0] || t >= cu_seqlens[documents]) {
    y[t] = last;
    return;
  }
  y[t] = t + 1 < cu_seqlens[last_up_to(t, cu_seqlens, documents) + 1] ? x[t + 1] : last;
}

void shift(const KernelCall& call) {
  const TensorView& y = call.out(0);
  if (y.capacity() == 0) return;
  next_in_document_kernel<<<static_cast<unsigned>(ceil_div(y.capacity(), kThreads)), kThreads, 0, stream_of(call)>>>(
      call.in(NextInDocumentIn::x).as<std::int32_t>(), call.in(NextInDocumentIn::cu_seqlens).as<std::int32_t>(),
      call.in(NextInDocumentIn::cu_seqlens).capacity() - 1, y.capacity(),
      static_cast<std::int32_t>(call.attributes_as<NextInDocumentAttributes>().last), y.as<std::int32_t>());
  check_launch("next_in_document");
}

}  // namespace

void register_next_in_document_cuda(KernelRegistry& registry) {
  registry.add("next_in_document", DeviceKind::kCuda, {shift, {}});
}

}  // namespace hone
