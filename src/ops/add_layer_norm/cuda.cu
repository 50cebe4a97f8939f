#include "ops/add_layer_norm/add_layer_norm.h"
#include "ops/layer_norm/row.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

template <class T>
void forward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& x = call.in(0);
  launch_layer_norm<T, true>(call, {.x = cuda_data<T>(x),
                                    .residual = cuda_data<T>(call.in(1)),
                                    .weight = cuda_data<T>(call.in(2)),
                                    .bias = cuda_data<T>(call.in(3)),
                                    .sum = cuda_data<T>(call.out(0)),
                                    .y = cuda_data<T>(call.out(1)),
                                    .mean = cuda_data<A>(call.out(2)),
                                    .rstd = cuda_data<A>(call.out(3)),
                                    .rows = row_count(call, x),
                                    .n = x.row_size(),
                                    .inverse = A(1) / static_cast<A>(x.row_size()),
                                    .epsilon = static_cast<A>(call.attributes_as<LayerNormAttributes>().epsilon)});
}

template <class T>
void backward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& sum = call.in(2);
  const bool trained = static_cast<bool>(call.in(6));
  launch_layer_norm_backward<T>(call,
                                {.dsum = cuda_data<T>(call.in(0)),
                                 .dy = cuda_data<T>(call.in(1)),
                                 .x = cuda_data<T>(sum),
                                 .weight = cuda_data<T>(call.in(3)),
                                 .mean = cuda_data<A>(call.in(4)),
                                 .rstd = cuda_data<A>(call.in(5)),
                                 .dx = cuda_data<T>(call.out(0)),
                                 .dweight_partials = nullptr,
                                 .dbias_partials = nullptr,
                                 .rows = row_count(call, sum),
                                 .n = sum.row_size()},
                                trained ? cuda_data<A>(call.out(1)) : nullptr,
                                trained ? cuda_data<A>(call.out(2)) : nullptr);
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  std::size_t bytes = 0;
  if (!inputs[6]) return bytes;
  for_cuda_floating(inputs[2]->dtype, [&]<class T>() { bytes = layer_norm_workspace<T>(*inputs[2]); });
  return bytes;
}

}  // namespace

void register_add_layer_norm_cuda(KernelRegistry& registry) {
  registry.add(
      "add_layer_norm", DeviceKind::cuda,
      {[](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
  registry.add(
      "add_layer_norm_backward", DeviceKind::cuda,
      {[](const KernelCall& call) { for_cuda_floating(call.in(1).dtype(), [&]<class T>() { backward<T>(call); }); },
       workspace});
}

}  // namespace hone
