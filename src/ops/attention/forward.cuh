// Attention forward for every dtype and every source of keys (packed or paged): bf16 on tensor cores, f32 and f64
// without. A build for HIP has the kernels without tensor cores for all three.
#pragma once

#include <span>

#include "ops/attention/simple_forward.cuh"
#ifndef HONE_HIP
#include "ops/attention/tensor_forward.cuh"
#endif

namespace hone {

#ifdef HONE_HIP
// The kernels without tensor cores need no workspace.
struct SimpleForwardPlan {
  static constexpr std::size_t workspace_bytes = 0;
  SimpleForwardPlan(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                    bool, bool = false) {}
};
using ForwardPlan = SimpleForwardPlan;
using WidenablePages = Fp8PagedKeys;  // they widen nothing in advance either
#endif

template <class T, class Keys>
void launch_attention_forward(const TileQueries<T>& queries, const Keys& keys, const ForwardPlan&, std::span<std::byte>,
                              cudaStream_t stream) {
  launch_simple_attention_forward(queries, keys, stream);
}

}  // namespace hone
