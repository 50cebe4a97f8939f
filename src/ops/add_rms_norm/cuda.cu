#include "ops/registry.h"
#include "ops/rms_norm/row.cuh"

namespace hone {
namespace {

void forward(const KernelCall& call) {
  for_cuda_floating(call.in(0).dtype(), [&]<class T>() { launch_rms_norm<T, true>(call); });
}

void backward(const KernelCall& call) {
  for_cuda_floating(call.in(1).dtype(),
                    [&]<class T>() { launch_rms_norm_backward<T, 1>(call, cuda_data<T>(call.in(0))); });
}

}  // namespace

void register_add_rms_norm_cuda(KernelRegistry& registry) {
  registry.add("add_rms_norm", DeviceKind::cuda, {forward, {}});
  registry.add("add_rms_norm_backward", DeviceKind::cuda, {backward, rms_norm_workspace<1>});
}

}  // namespace hone
