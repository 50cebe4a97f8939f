#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm/row.cuh"

namespace hone {
namespace {

template <class T>
void forward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& x = call.in(0);
  launch_rms_norm<T, false>(call, {.x = cuda_data<T>(x),
                                   .residual = nullptr,
                                   .weight = cuda_data<T>(call.in(1)),
                                   .sum = nullptr,
                                   .y = cuda_data<T>(call.out(0)),
                                   .rstd = cuda_data<A>(call.out(1)),
                                   .rows = row_count(call, x),
                                   .n = x.row_size(),
                                   .epsilon = static_cast<A>(call.attributes_as<RmsNormAttributes>().epsilon)});
}

template <class T>
void backward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& x = call.in(1);
  launch_rms_norm_backward<T>(call,
                              {.dsum = nullptr,
                               .dy = cuda_data<T>(call.in(0)),
                               .x = cuda_data<T>(x),
                               .weight = cuda_data<T>(call.in(2)),
                               .rstd = cuda_data<A>(call.in(3)),
                               .dx = cuda_data<T>(call.out(0)),
                               .partials = nullptr,
                               .rows = row_count(call, x),
                               .n = x.row_size()},
                              call.in(4) ? cuda_data<A>(call.out(1)) : nullptr);
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  std::size_t bytes = 0;
  if (!inputs[4]) return bytes;
  for_cuda_floating(inputs[1]->dtype, [&]<class T>() { bytes = rms_norm_workspace<T>(*inputs[1]); });
  return bytes;
}

}  // namespace

void register_rms_norm_cuda(KernelRegistry& registry) {
  registry.add(
      "rms_norm", DeviceKind::cuda,
      {[](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
  registry.add(
      "rms_norm_backward", DeviceKind::cuda,
      {[](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { backward<T>(call); }); },
       workspace});
}

}  // namespace hone
