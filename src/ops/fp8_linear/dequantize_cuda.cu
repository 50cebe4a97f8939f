#include "core/block_scales.h"
#include "ops/cuda_kernel.cuh"
#include "ops/fp8_linear/fp8_bits.cuh"
#include "ops/fp8_linear/fp8_cuda.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// Each thread converts kBytes neighbouring weights of one row.
template <int kBytes>
__global__ void dequantize(const std::uint8_t* weight, BlockScales scales, std::int64_t row, std::int64_t rows,
                           std::int64_t k, std::int64_t ldb, __nv_bfloat16* to) {
  begin_dependent_kernel();
  const std::int64_t pieces = k / kBytes;
  const std::int64_t piece = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (piece >= rows * pieces) return;
  const std::int64_t at = piece / pieces;
  const std::int64_t column = piece % pieces * kBytes;
  const float wide = scales.data[(row + at) / scales.rows * scales.stride + column / kScaleBlock] * 0x1p120f;
  const std::uint8_t* from = weight + (row + at) * ldb + column;
  __nv_bfloat16* out = to + at * k + column;
  if constexpr (kBytes == 16) {
    const uint4 four = __ldcs(reinterpret_cast<const uint4*>(from));
    const std::uint32_t words[4] = {four.x, four.y, four.z, four.w};
    std::uint32_t result[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // In order: bytes 0 and 1, bytes 2 and 3.
      result[2 * i] = scaled_in_f32(spread_odd_bytes(__byte_perm(words[i], 0, 0x1404)), wide);
      result[2 * i + 1] = scaled_in_f32(spread_odd_bytes(__byte_perm(words[i], 0, 0x3424)), wide);
    }
    auto* pair = reinterpret_cast<uint4*>(out);
    pair[0] = make_uint4(result[0], result[1], result[2], result[3]);
    pair[1] = make_uint4(result[4], result[5], result[6], result[7]);
  } else {
    *out = __ushort_as_bfloat16(
        static_cast<unsigned short>(scaled_in_f32(spread_even_bytes(static_cast<std::uint32_t>(*from)), wide)));
  }
}

template <int kBytes>
void launch(const Fp8Product& product, std::int64_t row, std::int64_t rows, void* to, cudaStream_t stream) {
  const GemmArgs& args = product.args;
  const std::int64_t pieces = rows * (args.k / kBytes);
  if (pieces == 0) return;
  launch_dependent({static_cast<unsigned>(ceil_div(pieces, kThreads)), kThreads}, stream, dequantize<kBytes>,
                   static_cast<const std::uint8_t*>(args.b), product.scales, row, rows, args.k, args.ldb,
                   static_cast<__nv_bfloat16*>(to));
  check_launch("dequantize_fp8");
}

}  // namespace

void dequantize_fp8(const Fp8Product& product, std::int64_t row, std::int64_t rows, void* to, cudaStream_t stream) {
  const GemmArgs& args = product.args;
  const bool wide = args.k % 16 == 0 && args.ldb % 16 == 0 && reinterpret_cast<std::uintptr_t>(args.b) % 16 == 0;
  wide ? launch<16>(product, row, rows, to, stream) : launch<1>(product, row, rows, to, stream);
}

}  // namespace hone
