// Products of quantized matrices on Hopper's tensor cores, of many rows, with cuBLASLt's bits (wgmma_dense.cuh).
#pragma once

#include "backend/cuda/device.h"
#include "backend/cuda/scaled_gemm.h"
#include "program/kernel.h"

namespace hone {

// Tiles of a product (wgmma_dense.cuh). kNone: its dimensions fit none of them.
enum class DenseTiles { kNone, kWide, kTall };

// The tiles with which a product takes the least time on `sms` SMs, and that time, in units of 1 / (max(width, 56) +
// 60) of the time that a tile of `width` tokens of wgmma_rows.cuh takes for 128 terms.
struct DenseChoice {
  DenseTiles tiles;
  std::int64_t time;
};
[[nodiscard]] DenseChoice dense_choice(const ScaledGemmArgs& args, int sms);

// The time that cuBLASLt needs by the same model, with its tiles of 128 x 128.
[[nodiscard]] std::int64_t cublas_time(const ScaledGemmArgs& args, int sms);

// Launches a product and returns true, or returns false on a device without wgmma, for kNone and for tiles that do not
// fit. `rows`: null, or a
// tensor whose rows in use are those of A that are multiplied; rows of C after them may be written, too. The workspace
// of args is not used.
bool launch_dense(const ScaledGemmArgs& args, DenseTiles tiles, const TensorView& rows, CudaDevice& device);

}  // namespace hone
