// Attention backward for every dtype, as forward.cuh chooses its kernels.
#pragma once

#include "ops/attention/simple_backward.cuh"
#ifndef HONE_HIP
#include "ops/attention/tensor_backward.cuh"
#include "ops/attention/wgmma_backward_launch.cuh"
#endif

namespace hone {

#ifdef HONE_HIP
inline bool launch_wgmma_attention_backward(const AttentionGradients<__nv_bfloat16>&, std::byte*, cudaStream_t) {
  return false;
}
inline std::size_t wgmma_backward_bytes(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t) {
  return 0;
}
template <class T>
void launch_attention_backward(const AttentionGradients<T>& args, cudaStream_t stream) {
  launch_simple_attention_backward(args, stream);
}
#endif

}  // namespace hone
