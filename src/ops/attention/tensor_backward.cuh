// Attention backward in bf16 with mma.m16n8k16 (sm_80 and later), after FlashAttention-2 (Dao, 2023), for any head_dim
// up to 256. It runs if wgmma_backward.cuh does not take the head or the device.
//
// Two kernels compute the scores again, so that every gradient is summed in registers, in one order, without a buffer
// for partial sums. Each warp has 16 rows and goes over stages of the other side that cp.async brings:
//
//   queries: 16 query rows to a warp (row r: token r / group, query head r % group), keys in ascending order
//                    | keys 0..63 | 64..127 | ... up to the last key that the block sees
//     warp w  dQ     |  S = Q K^T [16, 64]   dP = dO V^T [16, 64]   dS = P (dP - overlap)   dQ += dS K
//   keys: 16 keys to a warp; query heads of the group in order, of each the query rows in ascending order
//                    | head 0: rows from the first tile that sees a key on | head 1: ... |
//     warp w  dK dV  |  S^T = K Q^T [16, 64]   dV += P^T dO   dP^T = V dO^T [16, 64]   dK += dS^T Q
//
// The transposed products of the second kernel leave P^T and dS^T in registers as the A operand of the next product.
// P = exp2(S scale log2(e) - lse log2(e)); overlap is the sum over a row of dO o, by attention_output_dot.
//
//   head_dim    rows of a block   shared memory: own rows + 2 stages       registers of a thread: gradients + S, dP
//   up to 64    128 (8 warps)     32,768 + 2 x 16,896 =  66,560 bytes      64 (keys), 32 (queries) + 64 floats
//   up to 128   128 (8 warps)     65,536 + 2 x 33,280 = 132,096 bytes      128, 64 + 64
//   up to 256    64 (4 warps)     65,536 + 2 x 33,024 = 131,584 bytes      128, 128 + 32
// A stage is 64 rows of two operands (32 for head_dim above 128), in the keys kernel with their lse and overlap. Above
// 128 the keys kernel runs twice, for dK and for dV, whose sums do not fit a thread's registers together.
//
// Steps for each stage:
//   1. cp.async.wait_group 0 and __syncthreads(): the stage is in shared memory and no warp reads the other one
//   2. start copying the next stage to the other one
//   3. the products above; P and dS are rounded to bf16 in registers
// After the last stage the block's own rows in shared memory are overwritten by its gradients on their way out.
//
// The result does not depend on the batch: a gradient is a chain of products of one shape over the tiles of one
// sequence, in an order that follows from positions and heads alone. There are no atomics.
#pragma once

#include "backend/cuda/mma.cuh"
#include "ops/attention/simple_backward.cuh"
#include "ops/attention/tensor_forward.cuh"

namespace hone {

template <int kCount>
__device__ void clear_products(float (&c)[kCount][4]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.0f;
}

// c[16, 8 kCount] = a b^T over rows of kWidth: 16 rows of a from `row` on, 8 kCount rows of b from `column` on.
template <int kWidth, int kCount>
__device__ void multiply_rows(float (&c)[kCount][4], const SharedRows<kWidth>& a, int row, const SharedRows<kWidth>& b,
                              int column) {
  clear_products(c);
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    std::uint32_t of_a[4];
    a.load_a(of_a, row, step);
#pragma unroll
    for (int n = 0; n < kCount / 2; ++n) {
      std::uint32_t of_b[4];
      b.load_b(of_b, column + 16 * n, step);
      multiply_add(c[2 * n], of_a, of_b[0], of_b[1]);
      multiply_add(c[2 * n + 1], of_a, of_b[2], of_b[3]);
    }
  }
}

// c[16, kWidth] += a b with a [16, 8 kCount] as multiply_rows left it, rounded to bf16, and b rows from `row` on.
template <int kWidth, int kCount>
__device__ void add_product(float (&c)[kWidth / 8][4], const float (&a)[kCount][4], const SharedRows<kWidth>& b,
                            int row) {
#pragma unroll
  for (int step = 0; step < kCount / 2; ++step) {
    const auto& low = a[2 * step];
    const auto& high = a[2 * step + 1];
    const std::uint32_t of_a[4] = {packed_bf16(low[0], low[1]), packed_bf16(low[2], low[3]),
                                   packed_bf16(high[0], high[1]), packed_bf16(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < kWidth / 16; ++n) {
      std::uint32_t of_b[4];
      b.load_b_transposed(of_b, row + 16 * step, n);
      multiply_add(c[2 * n], of_a, of_b[0], of_b[1]);
      multiply_add(c[2 * n + 1], of_a, of_b[2], of_b[3]);
    }
  }
}

// Sizes of a block with kWarps x 16 own rows of two operands, and stages of kOthers rows of the other two.
template <int kWidth, int kWarps, int kOthers>
struct TensorBackward {
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kRows = kWarps * 16;
  static constexpr int kOwnBytes = kRows * kWidth * 2;      // one operand
  static constexpr int kOtherBytes = kOthers * kWidth * 2;  // one operand
  static constexpr int kStatisticBytes = kOthers * 4;
  static constexpr int kStageBytes = 2 * kOtherBytes + 2 * kStatisticBytes;
  static constexpr int kSharedBytes = 2 * kOwnBytes + 2 * kStageBytes;
};

// The gradients that a launch computes: for heads wider than 128, a thread's registers do not hold both.
enum class KeyGradients { kBoth, kKeys, kValues };

// dk and dv of kWarps x 16 keys and one key head. Scores and weights are computed for kColumns query columns at a time.
template <int kWidth, int kWarps, int kOthers, int kColumns, KeyGradients kWhich>
__global__ void __launch_bounds__(kWarps * 32)
    tensor_attention_backward_keys(AttentionGradients<__nv_bfloat16> args, std::int64_t tiles) {
  using Plan = TensorBackward<kWidth, kWarps, kOthers>;
  using Rows = SharedRows<kWidth>;
  constexpr bool kKeys = kWhich != KeyGradients::kValues;
  constexpr bool kValues = kWhich != KeyGradients::kKeys;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const Rows k{shared_address(shared_bytes)};
  const Rows v{k.base + Plan::kOwnBytes};
  const std::uint32_t stages = v.base + Plan::kOwnBytes;

  const auto kv_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(args.kv_heads));
  const SequenceTile tile =
      sequence_tile(args.sequences, 1, Plan::kRows, blockIdx.x / static_cast<unsigned>(args.kv_heads));
  if (tile.first >= tile.end) return;
  const int width = args.head_dim;
  const int chunks = width / 8;
  const int rows = tile.end - tile.first;
  const std::int64_t own = (tile.token + tile.first) * args.stride + kv_head * width;
  const auto copy_own = [&](const Rows& to, const __nv_bfloat16* from) {
    to.template copy<Plan::kRows, Plan::kThreads>(chunks, from, [&](int row) -> const __nv_bfloat16* {
      return row < rows && !tile.outside ? from + own + row * args.stride : nullptr;
    });
  };
  copy_own(k, args.k);
  copy_own(v, args.v);

  // Stages go over the group's query heads and, for each, over the rows from the first one that sees a key on.
  const int length = tile.outside ? 0 : tile.rows;
  const int first_key = tile.first;
  const int first_query = first_key / kOthers * kOthers;
  const int head_end = (kv_head + 1) * args.group();
  const auto copy_stage = [&](int head, int query, int stage) {
    const Rows q{stages + static_cast<std::uint32_t>(stage * Plan::kStageBytes)};
    const Rows grad_o{q.base + Plan::kOtherBytes};
    const std::uint32_t statistics = grad_o.base + Plan::kOtherBytes;
    const __nv_bfloat16* from_q = args.q + (tile.token + query) * args.stride + head * width;
    const __nv_bfloat16* from_o =
        args.grad_o + ((tile.token + query) * args.heads + head) * static_cast<std::int64_t>(width);
    q.template copy<kOthers, Plan::kThreads>(chunks, args.q, [&](int row) -> const __nv_bfloat16* {
      return query + row < length ? from_q + row * args.stride : nullptr;
    });
    grad_o.template copy<kOthers, Plan::kThreads>(chunks, args.q, [&](int row) -> const __nv_bfloat16* {
      return query + row < length ? from_o + static_cast<std::int64_t>(row * args.heads) * width : nullptr;
    });
    if (threadIdx.x < kOthers) {
      const auto row = static_cast<int>(threadIdx.x);
      const bool valid = query + row < length;
      const std::int64_t at = valid ? (tile.token + query + row) * args.heads + head : 0;
      copy_async4(statistics + row * 4, args.lse + at, valid);
      copy_async4(statistics + Plan::kStatisticBytes + row * 4, args.overlap + at, valid);
    }
    copy_async_commit();
  };

  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int warp_key = first_key + warp_row;
  const int key[2] = {warp_key + lane / 4, warp_key + lane / 4 + 8};
  const float scale = args.scale * kLog2e;
  float grad_k[kKeys ? kWidth / 8 : 1][4];
  float grad_v[kValues ? kWidth / 8 : 1][4];
  clear_products(grad_k);
  clear_products(grad_v);

  int head = kv_head * args.group();
  int query = first_query;
  if (query < length) copy_stage(head, query, 0);
  for (int turn = 0; query < length && head < head_end; ++turn) {
    int next_head = head;
    int next_query = query + kOthers;
    if (next_query >= length) {
      next_query = first_query;
      ++next_head;
    }
    copy_async_wait<0>();
    __syncthreads();  // the stage is in shared memory, and the other one has been read
    if (next_head < head_end) copy_stage(next_head, next_query, (turn + 1) % 2);
    const Rows q{stages + static_cast<std::uint32_t>(turn % 2 * Plan::kStageBytes)};
    const Rows grad_o{q.base + Plan::kOtherBytes};
    const float* lse =
        reinterpret_cast<const float*>(shared_bytes + (grad_o.base + Plan::kOtherBytes - k.base)) + lane % 4 * 2;
    const float* overlap = lse + kOthers;
    if (warp_key < length) {
#pragma unroll
      for (int column = 0; column < kOthers; column += kColumns) {
        if (query + column + kColumns - 1 < warp_key) continue;  // these rows see no key of the warp
        const bool whole = query + column >= warp_key + 15;      // they see all
        float weights[kColumns / 8][4];
        multiply_rows<kWidth>(weights, k, warp_row, q, column);
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          const float2 row_lse = *reinterpret_cast<const float2*>(lse + column + 8 * n);
          const float offset[2] = {-row_lse.x * kLog2e, -row_lse.y * kLog2e};
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            weights[n][e] = exp2_fast(__fmaf_rn(weights[n][e], scale, offset[e % 2]));
            if (!whole && query + column + 8 * n + lane % 4 * 2 + e % 2 < key[e / 2]) weights[n][e] = 0.0f;
          }
        }
        if constexpr (kValues) add_product<kWidth>(grad_v, weights, grad_o, column);
        if constexpr (kKeys) {
          float grad_scores[kColumns / 8][4];
          multiply_rows<kWidth>(grad_scores, v, warp_row, grad_o, column);
#pragma unroll
          for (int n = 0; n < kColumns / 8; ++n) {
            const float2 row_overlap = *reinterpret_cast<const float2*>(overlap + column + 8 * n);
            const float subtracted[2] = {row_overlap.x, row_overlap.y};
#pragma unroll
            for (int e = 0; e < 4; ++e) grad_scores[n][e] = weights[n][e] * (grad_scores[n][e] - subtracted[e % 2]);
          }
          add_product<kWidth>(grad_k, grad_scores, q, column);
        }
      }
    }
    head = next_head;
    query = next_query;
  }
  copy_async_commit();  // a block without stages: its own rows must have arrived before they are overwritten
  copy_async_wait<0>();
  __syncthreads();
  const auto target = [&](__nv_bfloat16* to) {
    return [=](int row) { return row < rows ? to + own + row * args.stride : nullptr; };
  };
  if constexpr (kKeys) {
    const float factor[2] = {args.scale, args.scale};
    store_rows(k, warp_row, grad_k, factor, chunks, target(args.grad_k));
  }
  if constexpr (kValues) {
    const float factor[2] = {1.0f, 1.0f};
    store_rows(v, warp_row, grad_v, factor, chunks, target(args.grad_v));
  }
}

// dq of kWarps x 16 query rows (token and head of the group) of one key head.
template <int kWidth, int kWarps, int kOthers>
__global__ void __launch_bounds__(kWarps * 32)
    tensor_attention_backward_queries(AttentionGradients<__nv_bfloat16> args, std::int64_t tiles) {
  using Plan = TensorBackward<kWidth, kWarps, kOthers>;
  using Rows = SharedRows<kWidth>;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const Rows q{shared_address(shared_bytes)};
  const Rows grad_o{q.base + Plan::kOwnBytes};
  const std::uint32_t stages = grad_o.base + Plan::kOwnBytes;

  const int group = args.group();
  const auto kv_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(args.kv_heads));
  const std::int64_t index = tiles - 1 - blockIdx.x / static_cast<unsigned>(args.kv_heads);  // the longest first
  const SequenceTile tile = sequence_tile(args.sequences, group, Plan::kRows, index);
  if (tile.first >= tile.end) return;
  const int width = args.head_dim;
  const int chunks = width / 8;
  const int rows = tile.end - tile.first;
  const auto token_of = [&](int row) { return tile.token + (tile.first + row) / group; };
  const auto head_of = [&](int row) { return kv_head * group + (tile.first + row) % group; };
  const auto place_of = [&](int row) { return token_of(row) * args.stride + head_of(row) * width; };
  q.template copy<Plan::kRows, Plan::kThreads>(chunks, args.q, [&](int row) -> const __nv_bfloat16* {
    return row < rows && !tile.outside ? args.q + place_of(row) : nullptr;
  });
  grad_o.template copy<Plan::kRows, Plan::kThreads>(chunks, args.q, [&](int row) -> const __nv_bfloat16* {
    return row < rows && !tile.outside ? args.grad_o + (token_of(row) * args.heads + head_of(row)) * width : nullptr;
  });

  const int last = tile.outside ? -1 : (tile.end - 1) / group;
  const PackedKeys<__nv_bfloat16> keys{args.k, args.v, args.stride, args.sequences.capacity};
  const auto copy_stage = [&](int key) {
    const std::uint32_t stage = stages + static_cast<std::uint32_t>(key / kOthers % 2 * Plan::kStageBytes);
    const auto copy = [&](std::uint32_t to, const __nv_bfloat16* from) {
      const __nv_bfloat16* first = from + keys.offset(tile, key) + kv_head * width;
      Rows{to}.template copy<kOthers, Plan::kThreads>(chunks, args.q, [&](int row) -> const __nv_bfloat16* {
        return key + row <= last ? first + row * args.stride : nullptr;
      });
    };
    copy(stage, args.k);
    copy(stage + Plan::kOtherBytes, args.v);
    copy_async_commit();
  };
  if (last >= 0) copy_stage(0);

  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const auto position_of = [&](int row) { return (tile.first + row) / group; };
  const int warp_first = position_of(warp_row);
  const int warp_last = position_of(warp_row + 15);
  int position[2];
  float offset[2];
  float overlap[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + 8 * half + lane / 4;
    position[half] = position_of(row);
    const std::int64_t at = token_of(row) * args.heads + head_of(row);
    offset[half] = row < rows ? -args.lse[at] * kLog2e : 0.0f;
    overlap[half] = row < rows ? args.overlap[at] : 0.0f;
  }
  const float scale = args.scale * kLog2e;
  float grad_q[kWidth / 8][4];
  clear_products(grad_q);
  for (int key = 0; key <= last; key += kOthers) {
    copy_async_wait<0>();
    __syncthreads();  // the stage is in shared memory, and the other one has been read
    if (key + kOthers <= last) copy_stage(key + kOthers);
    if (warp_row >= rows || key > warp_last) continue;
    const Rows k{stages + static_cast<std::uint32_t>(key / kOthers % 2 * Plan::kStageBytes)};
    const Rows v{k.base + Plan::kOtherBytes};
    float weights[kOthers / 8][4];
    multiply_rows<kWidth>(weights, q, warp_row, k, 0);
    const bool whole = key + kOthers - 1 <= warp_first;
#pragma unroll
    for (int n = 0; n < kOthers / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        weights[n][e] = exp2_fast(__fmaf_rn(weights[n][e], scale, offset[e / 2]));
        if (!whole && key + 8 * n + lane % 4 * 2 + e % 2 > position[e / 2]) weights[n][e] = 0.0f;
      }
    }
    float grad_scores[kOthers / 8][4];
    multiply_rows<kWidth>(grad_scores, grad_o, warp_row, v, 0);
#pragma unroll
    for (int n = 0; n < kOthers / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) grad_scores[n][e] = weights[n][e] * (grad_scores[n][e] - overlap[e / 2]);
    }
    add_product<kWidth>(grad_q, grad_scores, k, 0);
  }
  copy_async_commit();  // as in the keys kernel
  copy_async_wait<0>();
  __syncthreads();
  const float factor[2] = {args.scale, args.scale};
  store_rows(q, warp_row, grad_q, factor, chunks,
             [&](int row) { return row < rows ? args.grad_q + place_of(row) : nullptr; });
}

template <class Plan, class Kernel>
void launch_tensor_backward(Kernel kernel, const AttentionGradients<__nv_bfloat16>& args, std::int64_t per_token,
                            cudaStream_t stream) {
  const std::int64_t tiles = tiles_capacity(args.sequences, per_token, Plan::kRows);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kSharedBytes),
             "cudaFuncSetAttribute");
  kernel<<<static_cast<unsigned>(tiles * args.kv_heads), Plan::kThreads, Plan::kSharedBytes, stream>>>(args, tiles);
  check_launch("attention_backward");
}

template <int kWidth, int kWarps, int kOthers, int kColumns, KeyGradients kWhich>
void launch_key_gradients(const AttentionGradients<__nv_bfloat16>& args, cudaStream_t stream) {
  launch_tensor_backward<TensorBackward<kWidth, kWarps, kOthers>>(
      tensor_attention_backward_keys<kWidth, kWarps, kOthers, kColumns, kWhich>, args, 1, stream);
}

template <int kWidth, int kWarps, int kOthers>
void launch_query_gradients(const AttentionGradients<__nv_bfloat16>& args, cudaStream_t stream) {
  launch_tensor_backward<TensorBackward<kWidth, kWarps, kOthers>>(
      tensor_attention_backward_queries<kWidth, kWarps, kOthers>, args, args.group(), stream);
}

// Runs the backward pass in bf16. args.overlap has been computed.
inline void launch_attention_backward(const AttentionGradients<__nv_bfloat16>& args, cudaStream_t stream) {
  if (args.head_dim <= 64) {
    launch_query_gradients<64, 8, 64>(args, stream);
    launch_key_gradients<64, 8, 64, 64, KeyGradients::kBoth>(args, stream);
  } else if (args.head_dim <= 128) {
    launch_query_gradients<128, 8, 64>(args, stream);
    launch_key_gradients<128, 8, 64, 64, KeyGradients::kBoth>(args, stream);
  } else {
    launch_query_gradients<256, 4, 32>(args, stream);
    launch_key_gradients<256, 4, 32, 32, KeyGradients::kKeys>(args, stream);
    launch_key_gradients<256, 4, 32, 32, KeyGradients::kValues>(args, stream);
  }
}

template <class T>
void launch_attention_backward(const AttentionGradients<T>& args, cudaStream_t stream) {
  launch_simple_attention_backward(args, stream);
}

}  // namespace hone
