// PTX wrappers of Hopper's tensor memory accelerator (TMA; sm_90 and later): bulk copies between global and shared
// memory, and the mbarriers in shared memory that signal their completion. A phase of an mbarrier ends when all
// arrivals and all expected bytes are there.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/check.h"
#include "core/error.h"

namespace hone {

// Creates the tensor map of a tensor with `ranks` dimensions in global memory, innermost first, that is copied in
// boxes. `strides` are in bytes and given for all dimensions except the innermost. Elements of a box outside the tensor
// are read as zeros. `promotion`: how much around what is missing in the L2 cache is fetched, too. A box of 64 columns
// of bf16 has rows of 128 bytes; with 256 an H200 reads pages of keys at 4.2 TB/s and not at 4.5.
template <int ranks>
[[nodiscard]] CUtensorMap tensor_boxes(const void* data, CUtensorMapDataType type, const cuuint64_t (&sizes)[ranks],
                                       const cuuint64_t (&strides)[ranks - 1], const cuuint32_t (&box)[ranks],
                                       CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
             "cudaGetDriverEntryPointByVersion");
  HONE_ASSERT(found == cudaDriverEntryPointSuccess, "the driver has no cuTensorMapEncodeTiled");
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  cuuint32_t steps[ranks];
  for (cuuint32_t& step : steps) step = 1;
  CUtensorMap map{};
  const CUresult status = encode(&map, type, ranks, const_cast<void*>(data), sizes, strides, box, steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HONE_ASSERT(status == CUDA_SUCCESS, "cuTensorMapEncodeTiled failed with status ", static_cast<int>(status));
  return map;
}

// Creates the tensor map of bf16 [rows, heads, width] in global memory, with `row_stride` elements from one row to the
// next, that is copied in boxes of box_rows rows by box_heads heads by 64 columns.
[[nodiscard]] inline CUtensorMap row_boxes(const void* data, std::int64_t rows, std::int64_t row_stride,
                                           std::int64_t heads, std::int64_t width, std::int64_t box_rows,
                                           std::int64_t box_heads = 1) {
  return tensor_boxes<3>(
      data, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(rows)},
      {static_cast<cuuint64_t>(width) * 2, static_cast<cuuint64_t>(row_stride) * 2},
      {64, static_cast<cuuint32_t>(box_heads), static_cast<cuuint32_t>(box_rows)}, CU_TENSOR_MAP_SWIZZLE_128B);
}

// Creates the tensor map of f32 [rows, width] in global memory that is copied row by row; width is at most 256.
[[nodiscard]] inline CUtensorMap float_rows(const float* data, std::int64_t rows, std::int64_t width) {
  return tensor_boxes<2>(
      data, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(rows)},
      {static_cast<cuuint64_t>(width) * 4}, {static_cast<cuuint32_t>(width), 1}, CU_TENSOR_MAP_SWIZZLE_NONE);
}

__device__ inline void barrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Publishes the initialized barriers. Called after the last barrier_init by the thread that called it; a
// __syncthreads() must follow.
__device__ inline void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory"); }
__device__ inline void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
// Arrives and adds `bytes` to the bytes that must be copied before the phase ends.
__device__ inline void barrier_expect(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}
// Returns true if the phase of this parity has ended; may wait for a short time.
[[nodiscard]] __device__ inline bool barrier_done(std::uint32_t barrier, int parity) {
  int done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.b32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}
// The same, but does not wait.
[[nodiscard]] __device__ inline bool barrier_ended(std::uint32_t barrier, int parity) {
  int ended;
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
      "selp.b32 %0, 1, 0, ended;\n"
      "}\n"
      : "=r"(ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return ended != 0;
}
// Waits until the phase of this parity has ended.
__device__ inline void barrier_wait(std::uint32_t barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra.uni ended;\n"
      "bra.uni again;\n"
      "ended:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Copies a box of a row_boxes() map to shared memory, to an address that is a multiple of 1,024 bytes. `barrier` counts
// the bytes.
__device__ inline void bulk_copy_box(std::uint32_t shared, const CUtensorMap& map, int column, int head, int row,
                                     std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];\n" ::
          "r"(shared),
      "l"(&map), "r"(column), "r"(head), "r"(row), "r"(barrier)
      : "memory");
}
// The same for what this kernel copies once: the L2 cache drops it before other data.
__device__ inline void bulk_copy_box_once(std::uint32_t shared, const CUtensorMap& map, int column, int head, int row,
                                          std::uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, "
      "%4}], [%5], policy;\n"
      "}\n" ::"r"(shared),
      "l"(&map), "r"(column), "r"(head), "r"(row), "r"(barrier)
      : "memory");
}
// Copies a box of a tensor map with two dimensions to shared memory, to an address that is a multiple of 128 bytes, or
// of 1,024 if the box is swizzled. `barrier` counts the bytes.
__device__ inline void bulk_copy_tile(std::uint32_t shared, const CUtensorMap& map, int column, int row,
                                      std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\n" ::"r"(
          shared),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// Copies a row of a float_rows() map. A tensor map is used although the row is contiguous, because racecheck reports
// false races for bulk copies by address.
__device__ inline void bulk_copy_row(std::uint32_t shared, const CUtensorMap& map, int row, std::uint32_t barrier) {
  bulk_copy_tile(shared, map, 0, row, barrier);
}
// Copy floats from shared to global memory: bulk_store overwrites, bulk_add adds to the values there.
__device__ inline void bulk_store(float* to, std::uint32_t shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" ::"l"(to), "r"(shared), "r"(bytes)
               : "memory");
}
__device__ inline void bulk_add(float* to, std::uint32_t shared, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n" ::"l"(to), "r"(shared),
               "r"(bytes)
               : "memory");
}
__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;\n" ::: "memory"); }
// Wait for the committed bulk_store and bulk_add of this thread: bulk_wait_read until they have read shared memory,
// bulk_wait until they are complete.
__device__ inline void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory"); }
__device__ inline void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;\n" ::: "memory"); }

// Order memory accesses of threads (generic proxy) and those of TMA and wgmma (async proxy) relative to each other: for
// all memory, and for shared memory only.
__device__ inline void fence_async() { asm volatile("fence.proxy.async;\n" ::: "memory"); }
__device__ inline void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

__device__ inline void store_zeros16(std::uint32_t shared) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};\n" ::"r"(shared), "r"(0) : "memory");
}

// Barriers between some warps of a block, with `threads` threads in total. The ids are 1 to 15.
__device__ inline void named_barrier_wait(int id, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}
// Waits too, and returns true to all of the threads if the condition of each is true.
[[nodiscard]] __device__ inline bool named_barrier_all(int id, int threads, bool condition) {
  int all;
  asm volatile(
      "{\n"
      ".reg .pred own, all;\n"
      "setp.ne.s32 own, %1, 0;\n"
      "bar.red.and.pred all, %2, %3, own;\n"
      "selp.b32 %0, 1, 0, all;\n"
      "}\n"
      : "=r"(all)
      : "r"(static_cast<int>(condition)), "r"(id), "r"(threads)
      : "memory");
  return all != 0;
}
__device__ inline void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

[[nodiscard]] __device__ inline int load_acquire(const int* from) {
  int value;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];\n" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void store_release(int* to, int value) {
  asm volatile("st.release.gpu.global.b32 [%0], %1;\n" ::"l"(to), "r"(value) : "memory");
}

// Increase or decrease the registers of each thread of a warpgroup (setmaxnreg).
template <int kRegisters>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

}  // namespace hone
