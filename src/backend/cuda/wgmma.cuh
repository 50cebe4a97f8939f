// PTX wrappers of wgmma, the asynchronous matrix multiply-accumulate of a warpgroup (four warps) on Hopper's tensor
// cores, sm_90a only. The instruction reads operands from shared memory and runs while its threads do other work. Its
// results are available after warpgroup_wait; until then threads must not access the registers that it uses.
//
// Operands in shared memory are tiles of rows of 64 bf16 (128 bytes), with the layout of SharedRows<64> of mma.cuh and
// of bulk copies with a swizzle of 128 bytes. A tile starts at a multiple of 1,024 bytes.
#pragma once

#include <cstdint>

#include "backend/cuda/mma.cuh"
#include "backend/cuda/wgmma_sums.cuh"

namespace hone {

// Dimension along the rows of a tile: that of the sum (k), or the other one of the operand (m of A, n of B).
enum class Major { kK = 0, kMn = 1 };

// Returns the matrix descriptor of the operand at an address in shared memory. A step of 16 along k is 32 bytes for
// Major::kK and twice `eight_rows` for Major::kMn, where eight_rows is the distance in bytes from eight rows to the
// next eight. `tile_bytes` is the distance between two tiles of 64 columns, for Major::kMn only.
[[nodiscard]] __device__ inline std::uint64_t warpgroup_operand(std::uint32_t address, std::uint32_t tile_bytes,
                                                                std::uint32_t eight_rows = 1024) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  return kSwizzle128 | (std::uint64_t{eight_rows / 16} << 32) | (std::uint64_t{tile_bytes / 16} << 16) |
         ((address & 0x3FFFF) / 16);
}

// Required before the first wgmma and after threads have written registers that a wgmma uses.
__device__ inline void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ inline void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
// Waits until at most `kPending` committed groups are incomplete.
template <int kPending>
__device__ inline void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving reads of c above a preceding wait and writes of c below a following wgmma.
template <int kCount>
__device__ inline void settle(float (&c)[kCount][4]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n)
    asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}

// The instruction with 8 count columns; a_, b_, keep_, ... are the names of the operands after C.
#define HONE_WGMMA(count, columns, a_, b_, keep_, order_a_, order_b_)                               \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " keep_                                      \
               ", 0;\n"                                                                             \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" HONE_NAMES_##count \
               "}, " a_ ", " b_ ", keep, 1, 1, " order_a_ ", " order_b_ ";\n}\n"                    \
               : HONE_C_##count                                                                     \
               : "l"(a), "l"(b), "r"(keep), "n"(kOrderA), "n"(kOrderB))

// The same with A in registers.
#define HONE_WGMMA_HELD(count, columns, a0_, a1_, a2_, a3_, b_, keep_, order_b_)                    \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " keep_                                      \
               ", 0;\n"                                                                             \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" HONE_NAMES_##count \
               "}, {" a0_ ", " a1_ ", " a2_ ", " a3_ "}, " b_ ", keep, 1, 1, " order_b_ ";\n}\n"    \
               : HONE_C_##count                                                                     \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(kOrderB))

// Computes c[64, 8 kCount] = keep c + a[64, 16] b[16, 8 kCount], where `keep` is 0 or 1. Each of the four warps holds
// 16 rows of c in the layout of C of mma.m16n8k16.
template <Major kMajorA, Major kMajorB, int kCount>
__device__ void warpgroup_multiply(float (&c)[kCount][4], std::uint64_t a, std::uint64_t b, int keep) {
  constexpr int kOrderA = static_cast<int>(kMajorA);
  constexpr int kOrderB = static_cast<int>(kMajorB);
  static_assert(kCount >= 1 && kCount <= 32 && (kCount <= 8 || kCount % 2 == 0));
  if constexpr (kCount == 1) {
    HONE_WGMMA(1, "8", "%4", "%5", "%6", "%7", "%8");
  } else if constexpr (kCount == 2) {
    HONE_WGMMA(2, "16", "%8", "%9", "%10", "%11", "%12");
  } else if constexpr (kCount == 3) {
    HONE_WGMMA(3, "24", "%12", "%13", "%14", "%15", "%16");
  } else if constexpr (kCount == 4) {
    HONE_WGMMA(4, "32", "%16", "%17", "%18", "%19", "%20");
  } else if constexpr (kCount == 5) {
    HONE_WGMMA(5, "40", "%20", "%21", "%22", "%23", "%24");
  } else if constexpr (kCount == 6) {
    HONE_WGMMA(6, "48", "%24", "%25", "%26", "%27", "%28");
  } else if constexpr (kCount == 7) {
    HONE_WGMMA(7, "56", "%28", "%29", "%30", "%31", "%32");
  } else if constexpr (kCount == 8) {
    HONE_WGMMA(8, "64", "%32", "%33", "%34", "%35", "%36");
  } else if constexpr (kCount == 10) {
    HONE_WGMMA(10, "80", "%40", "%41", "%42", "%43", "%44");
  } else if constexpr (kCount == 12) {
    HONE_WGMMA(12, "96", "%48", "%49", "%50", "%51", "%52");
  } else if constexpr (kCount == 14) {
    HONE_WGMMA(14, "112", "%56", "%57", "%58", "%59", "%60");
  } else if constexpr (kCount == 16) {
    HONE_WGMMA(16, "128", "%64", "%65", "%66", "%67", "%68");
  } else if constexpr (kCount == 18) {
    HONE_WGMMA(18, "144", "%72", "%73", "%74", "%75", "%76");
  } else if constexpr (kCount == 20) {
    HONE_WGMMA(20, "160", "%80", "%81", "%82", "%83", "%84");
  } else if constexpr (kCount == 22) {
    HONE_WGMMA(22, "176", "%88", "%89", "%90", "%91", "%92");
  } else if constexpr (kCount == 24) {
    HONE_WGMMA(24, "192", "%96", "%97", "%98", "%99", "%100");
  } else if constexpr (kCount == 26) {
    HONE_WGMMA(26, "208", "%104", "%105", "%106", "%107", "%108");
  } else if constexpr (kCount == 28) {
    HONE_WGMMA(28, "224", "%112", "%113", "%114", "%115", "%116");
  } else if constexpr (kCount == 30) {
    HONE_WGMMA(30, "240", "%120", "%121", "%122", "%123", "%124");
  } else if constexpr (kCount == 32) {
    HONE_WGMMA(32, "256", "%128", "%129", "%130", "%131", "%132");
  }
}

// Does the same with A in registers: each warp holds its 16 rows in the layout of A of mma.m16n8k16.
template <Major kMajorB, int kCount>
__device__ void warpgroup_multiply(float (&c)[kCount][4], const std::uint32_t (&a)[4], std::uint64_t b, int keep) {
  constexpr int kOrderB = static_cast<int>(kMajorB);
  static_assert(kCount == 1 || (kCount % 2 == 0 && kCount <= 32));
  if constexpr (kCount == 1) {
    HONE_WGMMA_HELD(1, "8", "%4", "%5", "%6", "%7", "%8", "%9", "%10");
  } else if constexpr (kCount == 2) {
    HONE_WGMMA_HELD(2, "16", "%8", "%9", "%10", "%11", "%12", "%13", "%14");
  } else if constexpr (kCount == 4) {
    HONE_WGMMA_HELD(4, "32", "%16", "%17", "%18", "%19", "%20", "%21", "%22");
  } else if constexpr (kCount == 6) {
    HONE_WGMMA_HELD(6, "48", "%24", "%25", "%26", "%27", "%28", "%29", "%30");
  } else if constexpr (kCount == 8) {
    HONE_WGMMA_HELD(8, "64", "%32", "%33", "%34", "%35", "%36", "%37", "%38");
  } else if constexpr (kCount == 10) {
    HONE_WGMMA_HELD(10, "80", "%40", "%41", "%42", "%43", "%44", "%45", "%46");
  } else if constexpr (kCount == 12) {
    HONE_WGMMA_HELD(12, "96", "%48", "%49", "%50", "%51", "%52", "%53", "%54");
  } else if constexpr (kCount == 14) {
    HONE_WGMMA_HELD(14, "112", "%56", "%57", "%58", "%59", "%60", "%61", "%62");
  } else if constexpr (kCount == 16) {
    HONE_WGMMA_HELD(16, "128", "%64", "%65", "%66", "%67", "%68", "%69", "%70");
  } else if constexpr (kCount == 18) {
    HONE_WGMMA_HELD(18, "144", "%72", "%73", "%74", "%75", "%76", "%77", "%78");
  } else if constexpr (kCount == 20) {
    HONE_WGMMA_HELD(20, "160", "%80", "%81", "%82", "%83", "%84", "%85", "%86");
  } else if constexpr (kCount == 22) {
    HONE_WGMMA_HELD(22, "176", "%88", "%89", "%90", "%91", "%92", "%93", "%94");
  } else if constexpr (kCount == 24) {
    HONE_WGMMA_HELD(24, "192", "%96", "%97", "%98", "%99", "%100", "%101", "%102");
  } else if constexpr (kCount == 26) {
    HONE_WGMMA_HELD(26, "208", "%104", "%105", "%106", "%107", "%108", "%109", "%110");
  } else if constexpr (kCount == 28) {
    HONE_WGMMA_HELD(28, "224", "%112", "%113", "%114", "%115", "%116", "%117", "%118");
  } else if constexpr (kCount == 30) {
    HONE_WGMMA_HELD(30, "240", "%120", "%121", "%122", "%123", "%124", "%125", "%126");
  } else if constexpr (kCount == 32) {
    HONE_WGMMA_HELD(32, "256", "%128", "%129", "%130", "%131", "%132", "%133", "%134");
  }
}

#undef HONE_WGMMA
#undef HONE_WGMMA_HELD

// Launch bounds of kernels that use wgmma. Code for other architectures gets a bound of 32 threads, so that launchers
// can detect it by cudaFuncGetAttributes (maxThreadsPerBlock).
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HONE_WGMMA_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#else
#define HONE_WGMMA_BOUNDS(threads, blocks) __launch_bounds__(32, 1)
#endif

}  // namespace hone
