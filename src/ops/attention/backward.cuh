// Attention backward for every dtype, as forward.cuh chooses its kernels.
#pragma once

#include "ops/attention/simple_backward.cuh"
#include "ops/attention/wgmma_backward_turns.cuh"
#ifndef HONE_HIP
#include "ops/attention/tensor_backward.cuh"
#include "ops/attention/wgmma_backward_launch.cuh"
#endif

namespace hone {

#ifdef HONE_HIP
template <class Queries>
[[nodiscard]] bool launch_wgmma_attention_backward(const AttentionGradients<__nv_bfloat16>&, const BackwardKeys&,
                                                   const Queries&, std::byte*, cudaStream_t) {
  return false;
}
[[nodiscard]] inline std::size_t wgmma_backward_bytes(const WgmmaBackwardSizes&, std::int64_t) { return 0; }
template <class T>
void launch_attention_backward(const AttentionGradients<T>& args, cudaStream_t stream) {
  launch_simple_attention_backward(args, stream);
}
#endif

}  // namespace hone
