// Runs layer_norm on a GPU by the kernels of layer_norm/row.cuh.
#include "ops/layer_norm/layer_norm.h"
#include "ops/layer_norm/row.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

template <class T>
void forward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& x = call.in(LayerNormIn::x);
  launch_layer_norm<T, false>(call, {.x = cuda_data<T>(x),
                                     .residual = nullptr,
                                     .weight = cuda_data<T>(call.in(LayerNormIn::weight)),
                                     .bias = cuda_data<T>(call.in(LayerNormIn::bias)),
                                     .sum = nullptr,
                                     .y = cuda_data<T>(call.out(LayerNormOut::y)),
                                     .mean = cuda_data<A>(call.out(LayerNormOut::mean)),
                                     .rstd = cuda_data<A>(call.out(LayerNormOut::rstd)),
                                     .rows = row_count(x),
                                     .n = x.row_size(),
                                     .inverse = A(1) / static_cast<A>(x.row_size()),
                                     .epsilon = static_cast<A>(call.attributes_as<LayerNormAttributes>().epsilon)});
}

template <class T>
void backward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& x = call.in(LayerNormBackwardIn::x);
  const bool trained = static_cast<bool>(call.in(LayerNormBackwardIn::dweight));
  launch_layer_norm_backward<T>(call,
                                {.dsum = nullptr,
                                 .dy = cuda_data<T>(call.in(LayerNormBackwardIn::dy)),
                                 .x = cuda_data<T>(x),
                                 .weight = cuda_data<T>(call.in(LayerNormBackwardIn::weight)),
                                 .mean = cuda_data<A>(call.in(LayerNormBackwardIn::mean)),
                                 .rstd = cuda_data<A>(call.in(LayerNormBackwardIn::rstd)),
                                 .dx = cuda_data<T>(call.out(LayerNormBackwardOut::dx)),
                                 .dweight_partials = nullptr,
                                 .dbias_partials = nullptr,
                                 .rows = row_count(x),
                                 .n = x.row_size()},
                                trained ? cuda_data<A>(call.out(LayerNormBackwardOut::dweight)) : nullptr,
                                trained ? cuda_data<A>(call.out(LayerNormBackwardOut::dbias)) : nullptr);
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  std::size_t bytes = 0;
  if (!inputs[LayerNormBackwardIn::dweight]) return bytes;
  for_cuda_floating(inputs[LayerNormBackwardIn::x]->dtype,
                    [&]<class T>() { bytes = layer_norm_workspace<T>(*inputs[LayerNormBackwardIn::x]); });
  return bytes;
}

}  // namespace

void register_layer_norm_cuda(KernelRegistry& registry) {
  registry.add("layer_norm", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(LayerNormIn::x).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
  registry.add("layer_norm_backward", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(LayerNormBackwardIn::dy).dtype(), [&]<class T>() { backward<T>(call); });
                },
                workspace});
}

}  // namespace hone
