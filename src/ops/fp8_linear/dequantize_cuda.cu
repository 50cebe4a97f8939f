#include "backend/fp8_fragments.h"
#include "core/block_scales.h"
#include "ops/cuda_kernel.cuh"
#include "ops/fp8_linear/fp8_bits.cuh"
#include "ops/fp8_linear/fp8_cuda.h"
#include "ops/linear/quad.cuh"

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

// Each thread converts the 16 bytes of a unit of fragments that a computing thread takes: four links of a row, of which
// its quad has all columns. The four threads exchange them, so that each writes one link. `weight` is of row `row`.
__global__ void dequantize_fragments(const std::uint8_t* weight, BlockScales scales, std::int64_t row,
                                     std::int64_t pieces, std::int64_t k, __nv_bfloat16* to) {
  begin_dependent_kernel();
  const std::int64_t piece = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (piece >= pieces) return;  // for all threads of a warp or none
  const std::int64_t unit = piece / 64;
  const std::int64_t across = k / kFragmentColumns;
  const int half = static_cast<int>(piece / 32 % 2);
  const int lane = static_cast<int>(piece % 32);
  const std::int64_t at = unit / across * kFragmentRows + lane / 4;
  const float wide = scales.data[(row + at) / scales.rows * scales.stride + unit % across] * 0x1p120f;
  const uint4 four = __ldcs(reinterpret_cast<const uint4*>(weight) + piece);
  const std::uint32_t words[4] = {four.x, four.y, four.z, four.w};
  std::uint32_t first[4];   // columns 0 to 7 of the links
  std::uint32_t second[4];  // columns 8 to 15
#pragma unroll
  for (int link = 0; link < 4; ++link) {
    first[link] = scaled_in_f32(spread_first(words[link]), wide);
    second[link] = scaled_in_f32(spread_second(words[link]), wide);
  }
  transpose_quad(first, lane % 4);
  transpose_quad(second, lane % 4);
  auto* out = reinterpret_cast<uint4*>(to + at * k + unit % across * kFragmentColumns + (half * 4 + lane % 4) * 16);
  out[0] = make_uint4(first[0], first[1], first[2], first[3]);
  out[1] = make_uint4(second[0], second[1], second[2], second[3]);
}

template <int kBytes>
void launch(const Fp8Product& product, std::int64_t row, std::int64_t rows, __nv_bfloat16* to, cudaStream_t stream) {
  const GemmArgs& args = product.args;
  const LaunchShape shape{static_cast<unsigned>(ceil_div(rows * (args.k / kBytes), kThreads)), kThreads};
  launch_dependent(shape, stream, dequantize<kBytes>, static_cast<const std::uint8_t*>(args.b), product.scales, row,
                   rows, args.k, args.ldb, to);
}

void launch_fragments(const Fp8Product& product, std::int64_t row, std::int64_t rows, __nv_bfloat16* to,
                      cudaStream_t stream) {
  const GemmArgs& args = product.args;
  const std::int64_t pieces = rows * args.k / 16;
  launch_dependent({static_cast<unsigned>(ceil_div(pieces, kThreads)), kThreads}, stream, dequantize_fragments,
                   static_cast<const std::uint8_t*>(args.b) + row * args.k, product.scales, row, pieces, args.k, to);
}

}  // namespace

void dequantize_fp8(const Fp8Product& product, std::int64_t row, std::int64_t rows, void* to, cudaStream_t stream) {
  const GemmArgs& args = product.args;
  if (rows * args.k == 0) return;
  auto* out = static_cast<__nv_bfloat16*>(to);
  if (product.in_fragments) {
    launch_fragments(product, row, rows, out, stream);
  } else {
    const bool wide = args.k % 16 == 0 && args.ldb % 16 == 0 && reinterpret_cast<std::uintptr_t>(args.b) % 16 == 0;
    wide ? launch<16>(product, row, rows, out, stream) : launch<1>(product, row, rows, out, stream);
  }
  check_launch("dequantize_fp8");
}

}  // namespace hone
