#include "ops/elementwise.cuh"
#include "ops/registry.h"
#include "ops/scale/scale.h"

namespace hone {
namespace {

template <class T>
struct Product {
  CudaAccumulator<T> factor;
  __device__ T operator()(T x) const { return narrowed<T>(widened(x) * factor); }
};

template <class T>
void forward(const KernelCall& call) {
  const double factor = call.attributes_as<ScaleAttributes>().factor;
  launch_elementwise<T, Product<T>, T>(call, cuda_data<T>(call.out(0)), {static_cast<CudaAccumulator<T>>(factor)},
                                       cuda_data<T>(call.in(0)));
}

}  // namespace

void register_scale_cuda(KernelRegistry& registry) {
  registry.add(
      "scale", DeviceKind::kCuda,
      {[](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
}

}  // namespace hone
