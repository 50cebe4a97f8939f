// Runs add_rms_norm on a GPU by the kernels of rms_norm/row.cuh.
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/registry.h"
#include "ops/rms_norm/row.cuh"

namespace hone {
namespace {

void forward(const KernelCall& call) {
  for_cuda_floating(call.in(AddRmsNormIn::x).dtype(),
                    [&]<class T>() { launch_rms_norm<T, AddRmsNormIn, AddRmsNormOut>(call); });
}

void backward(const KernelCall& call) {
  for_cuda_floating(call.in(AddRmsNormBackwardIn::dy).dtype(),
                    [&]<class T>() { launch_rms_norm_backward<T, AddRmsNormBackwardIn, AddRmsNormBackwardOut>(call); });
}

}  // namespace

void register_add_rms_norm_cuda(KernelRegistry& registry) {
  registry.add("add_rms_norm", DeviceKind::kCuda, {forward, {}});
  registry.add("add_rms_norm_backward", DeviceKind::kCuda, {backward, rms_norm_workspace<AddRmsNormBackwardIn>});
}

}  // namespace hone
