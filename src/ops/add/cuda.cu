#include "ops/add/add.h"
#include "ops/elementwise.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return narrowed<T>(widened(a) + widened(b));
  }
};

template <class T>
void forward(const KernelCall& call) {
  launch_elementwise<T, Sum, T, T>(call, cuda_data<T>(call.out(0)), {}, cuda_data<T>(call.in(AddIn::a)),
                                   cuda_data<T>(call.in(AddIn::b)));
}

}  // namespace

void register_add_cuda(KernelRegistry& registry) {
  registry.add("add", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(AddIn::a).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
}

}  // namespace hone
