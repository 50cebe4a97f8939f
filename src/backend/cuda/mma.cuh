// Building blocks of bf16 tensor-core kernels (sm_80 and later): a swizzled layout of shared memory, loading of
// fragments, and mma. The layouts of fragments are those of PTX's mma.m16n8k16 and ldmatrix.
#pragma once

#include <cstdint>

#include "backend/cuda/kernel.cuh"

namespace hone {

__device__ inline void load_matrices(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Inverse of load_matrices (sm_90 and later).
__device__ inline void store_matrices(std::uint32_t address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// Inverse of load_matrices_transposed.
__device__ inline void store_matrices_transposed(std::uint32_t address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// c[16, 8] += a[16, 16] b[16, 8]
__device__ inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Swizzled matrix of bf16 rows in shared memory; kWidth is a multiple of 64 elements. The 16-byte chunk c of row r is
// stored at the position of chunk c ^ (r % 8), so that the same chunk of eight consecutive rows is in different banks:
//
//            position  0  1  2  3  4  5  6  7
//   row 0    chunk     0  1  2  3  4  5  6  7
//   row 1              1  0  3  2  5  4  7  6
//   row 2              2  3  0  1  6  7  4  5
//   ...
template <int kWidth>
struct SharedRows {
  static constexpr int kChunks = kWidth / 8;
  static constexpr int kRowBytes = kWidth * 2;
  std::uint32_t base;

  [[nodiscard]] __device__ std::uint32_t at(int row, int chunk) const {
    return base + static_cast<std::uint32_t>(row * kRowBytes + ((chunk ^ (row & 7)) * 16));
  }

  // Loads rows [row, row + 16) and columns [16 step, 16 step + 16) as fragment A.
  __device__ void load_a(std::uint32_t (&r)[4], int row, int step) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrices(r, at(row + (lane & 15), 2 * step + (lane >> 4)));
  }
  // Loads fragments of B, whose 16 columns are the rows [row, row + 16) and whose rows are the columns [16 step,
  // 16 step + 16): r[0] and r[1] are the first eight columns of B, r[2] and r[3] the other eight.
  __device__ void load_b(std::uint32_t (&r)[4], int row, int step) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrices(r, at(row + (lane & 7) + ((lane >> 4) << 3), 2 * step + ((lane >> 3) & 1)));
  }
  // Loads fragments of B, whose rows are the rows [row, row + 16) and whose 16 columns are the columns [16 step,
  // 16 step + 16), in the order of load_b.
  __device__ void load_b_transposed(std::uint32_t (&r)[4], int row, int step) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrices_transposed(r, at(row + (lane & 15), 2 * step + (lane >> 4)));
  }

  // Copies rows [0, kRows) asynchronously with a block of kThreads threads. source(row) returns the address of a row in
  // global memory, or null for a row of zeros; chunks from `chunks` on are zeros. `anywhere` is any valid address,
  // which is passed, but not read, for zeros.
  template <int kRows, int kThreads, class Source>
  __device__ void copy(int chunks, const __nv_bfloat16* anywhere, const Source& source) const {
    static_assert(kRows * kChunks % kThreads == 0);
#pragma unroll
    for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
      const int place = i * kThreads + static_cast<int>(threadIdx.x);
      const int row = place / kChunks;
      const int chunk = place % kChunks;
      const __nv_bfloat16* from = source(row);
      const bool valid = from != nullptr && chunk < chunks;
      copy_async16(at(row, chunk), valid ? from + chunk * 8 : anywhere, valid);
    }
  }
};

// Stores 16 rows of a warp, which begin at `row`, as bf16 to global memory. values[n][e] is the C fragment of the
// columns [8 n, 8 n + 8); rows 0..7 are multiplied by factor[0], rows 8..15 by factor[1]. The rows are staged in
// `shared`, so that each thread writes 16 bytes, and then copied to target(row), which returns null for rows to skip.
// All reads of these 16 rows of `shared` by other warps must be complete.
template <int kWidth, class Target>
__device__ void store_rows(const SharedRows<kWidth>& shared, int row, const float (&values)[kWidth / 8][4],
                           const float (&factor)[2], int chunks, const Target& target) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t pair =
          packed_bf16(values[n][2 * half] * factor[half], values[n][2 * half + 1] * factor[half]);
      const std::uint32_t to = shared.at(row + group + 8 * half, n) + static_cast<std::uint32_t>(lane % 4) * 4;
      asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(to), "r"(pair) : "memory");
    }
  }
  __syncwarp();
  constexpr int kChunks = kWidth / 8;
#pragma unroll
  for (int i = 0; i < 16 * kChunks / 32; ++i) {
    const int place = i * 32 + lane;
    const int chunk = place % kChunks;
    __nv_bfloat16* to = target(row + place / kChunks);
    if (to == nullptr || chunk >= chunks) continue;
    uint4 words;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(shared.at(row + place / kChunks, chunk))
                 : "memory");
    *reinterpret_cast<uint4*>(to + chunk * 8) = words;
  }
}

}  // namespace hone
