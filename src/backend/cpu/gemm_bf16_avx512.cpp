#include <immintrin.h>

#include <cstring>

#include "backend/cpu/gemm_bf16_kernels.h"

// g++ 12 warns of its intrinsics, which use undefined vectors.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#define HONE_BF16_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace hone {
namespace {

constexpr int kRows = 8;  // 16 sums, two vectors of b and one of a take 19 of the 32 vector registers

// Rows [row, row + kRows) of a tile.
HONE_BF16_TARGET void add_rows(const Bf16TileArgs& args, std::int64_t row) {
  const BFloat16* a = args.a + row / 16 * args.a_half + row % 16 * args.a_row;
  const BFloat16* b = args.b;
  float* c = args.c + row * args.ldc;
  __m512 low[kRows], high[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    low[r] = args.load ? _mm512_loadu_ps(c + r * args.ldc) : _mm512_setzero_ps();
    high[r] = args.load ? _mm512_loadu_ps(c + r * args.ldc + 16) : _mm512_setzero_ps();
  }
  for (std::int64_t block = 0; block < args.blocks; ++block, a += args.a_block, b += kBf16PanelBlock) {
    for (std::int64_t pair = 0; pair < kBf16Block / 2; ++pair) {
      const auto b0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + 32 * pair));
      const auto b1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + kBf16Half + 32 * pair));
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        std::int32_t both;
        std::memcpy(&both, a + r * args.a_row + 2 * pair, sizeof both);
        const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
        low[r] = _mm512_dpbf16_ps(low[r], x, b0);
        high[r] = _mm512_dpbf16_ps(high[r], x, b1);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    _mm512_storeu_ps(c + r * args.ldc, low[r]);
    _mm512_storeu_ps(c + r * args.ldc + 16, high[r]);
  }
}

void tile(const Bf16TileArgs& args) {
  for (std::int64_t row = 0; row < (args.one_half ? 16 : kBf16Tile); row += kRows) add_rows(args, row);
}

// Transposes 16 x 16 words of 32 bits.
HONE_BF16_TARGET void transpose(__m512i (&v)[16]) {
  __m512i t[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // t[i + j]: in each group of four words, word j of the four lines
    const __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]), b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]), d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {  // collects the groups of four lines
    const __m512i a = _mm512_shuffle_i32x4(t[j], t[4 + j], 0x44), b = _mm512_shuffle_i32x4(t[j], t[4 + j], 0xEE);
    const __m512i c = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0x44);
    const __m512i d = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0xEE);
    v[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    v[4 + j] = _mm512_shuffle_i32x4(a, c, 0xDD);
    v[8 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
    v[12 + j] = _mm512_shuffle_i32x4(b, d, 0xDD);
  }
}

std::uint32_t mask_of(std::int64_t count) {
  return count >= 32 ? ~0U : (1U << static_cast<unsigned>(count > 0 ? count : 0)) - 1U;
}

// Loads 16 lines of 32 elements, one line a vector.
HONE_BF16_TARGET void load_lines(const BFloat16* data, std::int64_t stride, std::int64_t lines, std::int64_t depth,
                                 __m512i (&v)[16]) {
  constexpr std::int64_t kAhead = 256;  // elements that are fetched ahead, in lines too far apart for the processor
  const std::uint32_t mask = mask_of(depth);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if (i < lines && depth > kAhead) __builtin_prefetch(data + i * stride + kAhead);
    v[i] = i < lines ? _mm512_maskz_loadu_epi16(mask, data + i * stride) : _mm512_setzero_si512();
  }
}

HONE_BF16_TARGET void transpose_half(BFloat16* half) {
  __m512i v[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) v[i] = _mm512_loadu_si512(half + i * kBf16Block);
  transpose(v);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(half + i * kBf16Block, v[i]);
}

// Packs a block of k of at most 16 lines; the elements of a line are neighbours.
HONE_BF16_TARGET void pack_lines(const BFloat16* data, std::int64_t stride, std::int64_t lines, std::int64_t depth,
                                 Bf16Layout layout, BFloat16* out) {
  __m512i v[16];
  load_lines(data, stride, lines, depth, v);
  if (layout == Bf16Layout::kPairs) transpose(v);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * kBf16Block, v[i]);
}

// Packs a block of k of at most 32 lines whose elements of one depth are neighbours. Each row of the matrix is read
// once: rows a multiple of 4 KiB apart displace each other from the L1 cache.
HONE_BF16_TARGET void pack_depths(const BFloat16* data, std::int64_t stride, std::int64_t lines, std::int64_t depth,
                                  Bf16Layout layout, BFloat16* out) {
  const std::uint32_t mask = mask_of(lines);
  for (std::int64_t i = 0; i < 16; ++i) {
    const BFloat16* row = data + 2 * i * stride;
    const __m512i zero = _mm512_setzero_si512();
    const __m512i first = 2 * i < depth ? _mm512_maskz_loadu_epi16(mask, row) : zero;
    const __m512i second = 2 * i + 1 < depth ? _mm512_maskz_loadu_epi16(mask, row + stride) : zero;
    const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(second));
    const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(second, 1));
    _mm512_storeu_si512(out + i * kBf16Block, _mm512_or_si512(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(first)),
                                                              _mm512_slli_epi32(low, 16)));
    _mm512_storeu_si512(
        out + kBf16Half + i * kBf16Block,
        _mm512_or_si512(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(first, 1)), _mm512_slli_epi32(high, 16)));
  }
  if (layout == Bf16Layout::kPairs) return;
  transpose_half(out);
  transpose_half(out + kBf16Half);
}

}  // namespace

Bf16Kernels bf16_kernels_avx512() {
  return {[] {}, tile, [] {}};
}

// Rows of a matrix are read in the order of their addresses, as far as a block of k allows.
void pack_bf16(const PackSource& source, const PackRange& range, Bf16Layout layout, BFloat16* out) {
  if (source.dtype == DType::kU8) {
    const std::int64_t padded = (range.depth + kBf16Block - 1) / kBf16Block * kBf16Block;
    return for_dequantized_parts(
        source, range, kBf16Tile, [&](const auto& part, const auto& inside, auto line, auto depth) {
          pack_bf16(part, inside, layout, out + line * padded + depth / kBf16Block * kBf16PanelBlock);
        });
  }
  const auto* data = static_cast<const BFloat16*>(source.data);
  const std::int64_t panels = (range.lines + kBf16Tile - 1) / kBf16Tile;
  const std::int64_t blocks = (range.depth + kBf16Block - 1) / kBf16Block;
  if (source.depth_major) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t done = block * kBf16Block;
      const BFloat16* row = data + (range.begin + done) * source.stride + range.first;
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        pack_depths(row + panel * kBf16Tile, source.stride, range.lines - panel * kBf16Tile, range.depth - done, layout,
                    out + (panel * blocks + block) * kBf16PanelBlock);
      }
    }
    return;
  }
  for (std::int64_t half = 0; half < 2 * panels; ++half) {
    const std::int64_t lines = range.lines - 16 * half;
    const BFloat16* line = data + (range.first + (lines > 0 ? 16 * half : 0)) * source.stride + range.begin;
    BFloat16* to = out + half / 2 * blocks * kBf16PanelBlock + half % 2 * kBf16Half;
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t done = block * kBf16Block;
      pack_lines(line + done, source.stride, lines, range.depth - done, layout, to + block * kBf16PanelBlock);
    }
  }
}

}  // namespace hone
