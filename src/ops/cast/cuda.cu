#include "ops/elementwise.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

template <class To>
struct Convert {
  template <class From>
  __device__ To operator()(From x) const {
    return narrowed<To>(static_cast<CudaAccumulator<To>>(widened(x)));
  }
};

template <class From, class To>
void convert(const KernelCall& call) {
  launch_elementwise<To, Convert<To>, From>(call, cuda_data<To>(call.out(0)), {}, cuda_data<From>(call.in(0)));
}

void forward(const KernelCall& call) {
  for_cuda_floating(call.in(0).dtype(), [&]<class From>() {
    for_cuda_floating(call.out(0).dtype(), [&]<class To>() { convert<From, To>(call); });
  });
}

}  // namespace

void register_cast_cuda(KernelRegistry& registry) { registry.add("cast", DeviceKind::kCuda, {forward, {}}); }

}  // namespace hone
