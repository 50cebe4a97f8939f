#include "ops/registry.h"
#include "ops/rms_norm/row.cuh"

namespace hone {
namespace {

void forward(const KernelCall& call) {
  for_cuda_floating(call.in(0).dtype(), [&]<class T>() { launch_rms_norm<T, false>(call); });
}

void backward(const KernelCall& call) {
  for_cuda_floating(call.in(0).dtype(), [&]<class T>() { launch_rms_norm_backward<T, 0>(call, nullptr); });
}

}  // namespace

void register_rms_norm_cuda(KernelRegistry& registry) {
  registry.add("rms_norm", DeviceKind::cuda, {forward, {}});
  registry.add("rms_norm_backward", DeviceKind::cuda, {backward, rms_norm_workspace<0>});
}

}  // namespace hone
