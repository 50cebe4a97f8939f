#include "ops/elementwise.cuh"
#include "ops/fill/fill.h"
#include "ops/registry.h"

namespace hone {
namespace {

template <class T>
struct Constant {
  CudaAccumulator<T> value;
  __device__ T operator()() const { return narrowed<T>(value); }
};

template <class T>
void forward(const KernelCall& call) {
  const double value = call.attributes_as<FillAttributes>().value;
  launch_elementwise<T, Constant<T>>(call, cuda_data<T>(call.out(0)), {static_cast<CudaAccumulator<T>>(value)});
}

}  // namespace

void register_fill_cuda(KernelRegistry& registry) {
  registry.add(
      "fill", DeviceKind::kCuda,
      {[](const KernelCall& call) { for_cuda_floating(call.out(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
}

}  // namespace hone
