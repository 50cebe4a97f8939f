// PTX wrappers of wgmma for operands of e4m3 with sums in f32, sm_90a only (wgmma.cuh). Both operands run along the sum
// (Major::kK): tiles of rows of 128 bytes, swizzled by 128 bytes. A step of 32 along k is 32 bytes.
#pragma once

#include <cstdint>

#include "backend/cuda/wgmma.cuh"
#include "backend/cuda/wgmma_sums.cuh"

namespace hone {

// The instruction with 8 count columns; a_, b_ and keep_ are the names of the operands after C.
#define HONE_WGMMA(count, columns, a_, b_, keep_)                                                   \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " keep_                                      \
               ", 0;\n"                                                                             \
               "wgmma.mma_async.sync.aligned.m64n" columns "k32.f32.e4m3.e4m3 {" HONE_NAMES_##count \
               "}, " a_ ", " b_ ", keep, 1, 1;\n}\n"                                                \
               : HONE_C_##count                                                                     \
               : "l"(a), "l"(b), "r"(keep))

// The same with A in registers.
#define HONE_WGMMA_HELD(count, columns, a0_, a1_, a2_, a3_, b_, keep_)                              \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " keep_                                      \
               ", 0;\n"                                                                             \
               "wgmma.mma_async.sync.aligned.m64n" columns "k32.f32.e4m3.e4m3 {" HONE_NAMES_##count \
               "}, {" a0_ ", " a1_ ", " a2_ ", " a3_ "}, " b_ ", keep, 1, 1;\n}\n"                  \
               : HONE_C_##count                                                                     \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep))

// Computes c[64, 8 kCount] = keep c + a[64, 32] b[32, 8 kCount], where `keep` is 0 or 1. c has the layout of wgmma.cuh.
template <int kCount>
__device__ void warpgroup_multiply_e4m3(float (&c)[kCount][4], std::uint64_t a, std::uint64_t b, int keep) {
  static_assert(kCount == 1 || (kCount % 2 == 0 && kCount <= 24));
  if constexpr (kCount == 1) {
    HONE_WGMMA(1, "8", "%4", "%5", "%6");
  } else if constexpr (kCount == 2) {
    HONE_WGMMA(2, "16", "%8", "%9", "%10");
  } else if constexpr (kCount == 4) {
    HONE_WGMMA(4, "32", "%16", "%17", "%18");
  } else if constexpr (kCount == 6) {
    HONE_WGMMA(6, "48", "%24", "%25", "%26");
  } else if constexpr (kCount == 8) {
    HONE_WGMMA(8, "64", "%32", "%33", "%34");
  } else if constexpr (kCount == 10) {
    HONE_WGMMA(10, "80", "%40", "%41", "%42");
  } else if constexpr (kCount == 12) {
    HONE_WGMMA(12, "96", "%48", "%49", "%50");
  } else if constexpr (kCount == 14) {
    HONE_WGMMA(14, "112", "%56", "%57", "%58");
  } else if constexpr (kCount == 16) {
    HONE_WGMMA(16, "128", "%64", "%65", "%66");
  } else if constexpr (kCount == 18) {
    HONE_WGMMA(18, "144", "%72", "%73", "%74");
  } else if constexpr (kCount == 20) {
    HONE_WGMMA(20, "160", "%80", "%81", "%82");
  } else if constexpr (kCount == 22) {
    HONE_WGMMA(22, "176", "%88", "%89", "%90");
  } else if constexpr (kCount == 24) {
    HONE_WGMMA(24, "192", "%96", "%97", "%98");
  }
}

// Does the same with A in registers: each warp holds its 16 rows in the layout of A of mma.m16n8k32.
template <int kCount>
__device__ void warpgroup_multiply_e4m3(float (&c)[kCount][4], const std::uint32_t (&a)[4], std::uint64_t b, int keep) {
  static_assert(kCount == 1 || (kCount % 2 == 0 && kCount <= 24));
  if constexpr (kCount == 1) {
    HONE_WGMMA_HELD(1, "8", "%4", "%5", "%6", "%7", "%8", "%9");
  } else if constexpr (kCount == 2) {
    HONE_WGMMA_HELD(2, "16", "%8", "%9", "%10", "%11", "%12", "%13");
  } else if constexpr (kCount == 4) {
    HONE_WGMMA_HELD(4, "32", "%16", "%17", "%18", "%19", "%20", "%21");
  } else if constexpr (kCount == 6) {
    HONE_WGMMA_HELD(6, "48", "%24", "%25", "%26", "%27", "%28", "%29");
  } else if constexpr (kCount == 8) {
    HONE_WGMMA_HELD(8, "64", "%32", "%33", "%34", "%35", "%36", "%37");
  } else if constexpr (kCount == 10) {
    HONE_WGMMA_HELD(10, "80", "%40", "%41", "%42", "%43", "%44", "%45");
  } else if constexpr (kCount == 12) {
    HONE_WGMMA_HELD(12, "96", "%48", "%49", "%50", "%51", "%52", "%53");
  } else if constexpr (kCount == 14) {
    HONE_WGMMA_HELD(14, "112", "%56", "%57", "%58", "%59", "%60", "%61");
  } else if constexpr (kCount == 16) {
    HONE_WGMMA_HELD(16, "128", "%64", "%65", "%66", "%67", "%68", "%69");
  } else if constexpr (kCount == 18) {
    HONE_WGMMA_HELD(18, "144", "%72", "%73", "%74", "%75", "%76", "%77");
  } else if constexpr (kCount == 20) {
    HONE_WGMMA_HELD(20, "160", "%80", "%81", "%82", "%83", "%84", "%85");
  } else if constexpr (kCount == 22) {
    HONE_WGMMA_HELD(22, "176", "%88", "%89", "%90", "%91", "%92", "%93");
  } else if constexpr (kCount == 24) {
    HONE_WGMMA_HELD(24, "192", "%96", "%97", "%98", "%99", "%100", "%101");
  }
}

#undef HONE_WGMMA
#undef HONE_WGMMA_HELD

}  // namespace hone
