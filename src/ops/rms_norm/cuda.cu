// Runs rms_norm on a GPU by the kernels of rms_norm/row.cuh.
#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm/row.cuh"

namespace hone {
namespace {

void forward(const KernelCall& call) {
  for_cuda_floating(call.in(RmsNormIn::x).dtype(), [&]<class T>() { launch_rms_norm<T, RmsNormIn, RmsNormOut>(call); });
}

void backward(const KernelCall& call) {
  for_cuda_floating(call.in(RmsNormBackwardIn::dy).dtype(),
                    [&]<class T>() { launch_rms_norm_backward<T, RmsNormBackwardIn, RmsNormBackwardOut>(call); });
}

}  // namespace

void register_rms_norm_cuda(KernelRegistry& registry) {
  registry.add("rms_norm", DeviceKind::kCuda, {forward, {}});
  registry.add("rms_norm_backward", DeviceKind::kCuda, {backward, rms_norm_workspace<RmsNormBackwardIn>});
}

}  // namespace hone
