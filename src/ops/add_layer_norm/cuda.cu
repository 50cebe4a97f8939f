// Runs add_layer_norm on a GPU by the kernels of layer_norm/row.cuh.
#include "ops/add_layer_norm/add_layer_norm.h"
#include "ops/layer_norm/row.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

template <class T>
void forward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& x = call.in(AddLayerNormIn::x);
  launch_layer_norm<T, true>(call, {.x = cuda_data<T>(x),
                                    .residual = cuda_data<T>(call.in(AddLayerNormIn::residual)),
                                    .weight = cuda_data<T>(call.in(AddLayerNormIn::weight)),
                                    .bias = cuda_data<T>(call.in(AddLayerNormIn::bias)),
                                    .sum = cuda_data<T>(call.out(AddLayerNormOut::sum)),
                                    .y = cuda_data<T>(call.out(AddLayerNormOut::y)),
                                    .mean = cuda_data<A>(call.out(AddLayerNormOut::mean)),
                                    .rstd = cuda_data<A>(call.out(AddLayerNormOut::rstd)),
                                    .rows = row_count(x),
                                    .n = x.row_size(),
                                    .inverse = A(1) / static_cast<A>(x.row_size()),
                                    .epsilon = static_cast<A>(call.attributes_as<LayerNormAttributes>().epsilon)});
}

template <class T>
void backward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& sum = call.in(AddLayerNormBackwardIn::x);
  const bool trained = static_cast<bool>(call.in(AddLayerNormBackwardIn::dweight));
  launch_layer_norm_backward<T>(call,
                                {.dsum = cuda_data<T>(call.in(AddLayerNormBackwardIn::dsum)),
                                 .dy = cuda_data<T>(call.in(AddLayerNormBackwardIn::dy)),
                                 .x = cuda_data<T>(sum),
                                 .weight = cuda_data<T>(call.in(AddLayerNormBackwardIn::weight)),
                                 .mean = cuda_data<A>(call.in(AddLayerNormBackwardIn::mean)),
                                 .rstd = cuda_data<A>(call.in(AddLayerNormBackwardIn::rstd)),
                                 .dx = cuda_data<T>(call.out(AddLayerNormBackwardOut::dx)),
                                 .dweight_partials = nullptr,
                                 .dbias_partials = nullptr,
                                 .rows = row_count(sum),
                                 .n = sum.row_size()},
                                trained ? cuda_data<A>(call.out(AddLayerNormBackwardOut::dweight)) : nullptr,
                                trained ? cuda_data<A>(call.out(AddLayerNormBackwardOut::dbias)) : nullptr);
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  std::size_t bytes = 0;
  if (!inputs[AddLayerNormBackwardIn::dweight]) return bytes;
  for_cuda_floating(inputs[AddLayerNormBackwardIn::x]->dtype,
                    [&]<class T>() { bytes = layer_norm_workspace<T>(*inputs[AddLayerNormBackwardIn::x]); });
  return bytes;
}

}  // namespace

void register_add_layer_norm_cuda(KernelRegistry& registry) {
  registry.add("add_layer_norm", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(AddLayerNormIn::x).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
  registry.add("add_layer_norm_backward", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(AddLayerNormBackwardIn::dy).dtype(), [&]<class T>() { backward<T>(call); });
                },
                workspace});
}

}  // namespace hone
