#include "ops/layer_norm/layer_norm.h"
#include "ops/layer_norm/row.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

template <class T>
void forward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& x = call.in(0);
  launch_layer_norm<T, false>(call, {.x = cuda_data<T>(x),
                                     .residual = nullptr,
                                     .weight = cuda_data<T>(call.in(1)),
                                     .bias = cuda_data<T>(call.in(2)),
                                     .sum = nullptr,
                                     .y = cuda_data<T>(call.out(0)),
                                     .mean = cuda_data<A>(call.out(1)),
                                     .rstd = cuda_data<A>(call.out(2)),
                                     .rows = row_count(call, x),
                                     .n = x.row_size(),
                                     .inverse = A(1) / static_cast<A>(x.row_size()),
                                     .epsilon = static_cast<A>(call.attributes_as<LayerNormAttributes>().epsilon)});
}

template <class T>
void backward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& x = call.in(1);
  const bool trained = static_cast<bool>(call.in(5));
  launch_layer_norm_backward<T>(call,
                                {.dsum = nullptr,
                                 .dy = cuda_data<T>(call.in(0)),
                                 .x = cuda_data<T>(x),
                                 .weight = cuda_data<T>(call.in(2)),
                                 .mean = cuda_data<A>(call.in(3)),
                                 .rstd = cuda_data<A>(call.in(4)),
                                 .dx = cuda_data<T>(call.out(0)),
                                 .dweight_partials = nullptr,
                                 .dbias_partials = nullptr,
                                 .rows = row_count(call, x),
                                 .n = x.row_size()},
                                trained ? cuda_data<A>(call.out(1)) : nullptr,
                                trained ? cuda_data<A>(call.out(2)) : nullptr);
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  std::size_t bytes = 0;
  if (!inputs[5]) return bytes;
  for_cuda_floating(inputs[1]->dtype, [&]<class T>() { bytes = layer_norm_workspace<T>(*inputs[1]); });
  return bytes;
}

}  // namespace

void register_layer_norm_cuda(KernelRegistry& registry) {
  registry.add(
      "layer_norm", DeviceKind::cuda,
      {[](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
  registry.add(
      "layer_norm_backward", DeviceKind::cuda,
      {[](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { backward<T>(call); }); },
       workspace});
}

}  // namespace hone
