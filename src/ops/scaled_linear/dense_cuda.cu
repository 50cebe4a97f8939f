// Launches the products of wgmma_dense.cuh.
#include "ops/scaled_linear/dense_cuda.h"

#include <algorithm>

#include "ops/cuda_kernel.cuh"
#include "ops/scaled_grouped_linear/byte_boxes.cuh"
#include "ops/scaled_linear/wgmma_dense.cuh"

namespace hone {
namespace {

// Times of a tile for 128 terms (DenseChoice). As columns of wgmma 128 x 192 has 252, and 0.8 of the time as rows
// (docs/lab-notes.md, Experts); the others by their rates next to it (Dense products by the tiles of experts).
constexpr std::int64_t kWideTime = 202;
constexpr std::int64_t kTallTime = 260;
constexpr std::int64_t kCublasTime = 140;

std::int64_t time_of_tiles(const ScaledGemmArgs& args, std::int64_t rows, std::int64_t columns, std::int64_t time,
                           int sms) {
  return ceil_div(ceil_div(args.m, rows) * ceil_div(args.n, columns), sms) * time;
}

// Returns true if the tensor maps, the scales and the boxes of C take the dimensions.
bool fits(const ScaledGemmArgs& args) {
  return args.m > 0 && args.m % (args.accumulate ? 64 : 4) == 0 && args.n > 0 && args.n % kScaledDepth == 0 &&
         args.k % 16 == 0 && WideTokensPlan::takes_depth(args.k) && TallTokensPlan::takes_depth(args.k);
}

bool fits_tall(const ScaledGemmArgs& args) { return args.n % (2 * TallTokensPlan::kWeightRows) == 0; }

template <class Plan, class Result>
bool launch(const ScaledGemmArgs& args, const RowCount& used, const Result& result, CudaDevice& device) {
  const auto kernel = tokens_product<Plan, Result>;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < kGroupedThreads) return false;  // built for a device without wgmma
  const std::int64_t stages = ceil_div(args.k, kScaledDepth);
  const std::int64_t stride = ceil_div(stages, 4) * 4;
  const CUtensorMap first = byte_boxes(args.a, args.m, args.k, Plan::kTokenBox);
  const TokensMaps maps{.weight = byte_boxes(args.b, args.n, args.k, Plan::kWeightRows),
                        .tokens = first,
                        .out = args.c_type == DType::kF32 ? first  // not used
                               : Result::kKeeps           ? row_boxes(args.c, 1, args.m * args.n, args.m, args.n, 1, 64)
                                                          : row_boxes(args.c, args.m, args.n, 1, args.n, 64),
                        .weight_scale = scale_boxes(args.b_scale, args.n / kScaledDepth, stride,
                                                    std::min<std::int64_t>(stride, kMostScaleBox)),
                        .token_scale = scale_boxes(args.a_scale, stages, args.m, Plan::kScaleBox)};
  const ScaledArgs scaled{.grouped = {.start = nullptr,
                                      .experts = 1,
                                      .rows = static_cast<int>(args.n),
                                      .columns = 0,
                                      .depth = static_cast<int>(stages * kScaledDepth),
                                      .capacity = args.m,
                                      .out = args.c,
                                      .accumulated = args.accumulated,
                                      .used = used},
                          .weight_scale = args.b_scale,
                          .weight_stride = stride,
                          .token_scale = args.a_scale,
                          .token_stride = args.m};
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes),
             "cudaFuncSetAttribute");
  const std::int64_t tiles = ceil_div(args.m, Plan::kColumns) * ceil_div(args.n, Plan::kWeightRows);
  constexpr unsigned kCluster = Plan::kPair ? 2 : 1;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(tiles, device.sm_count() / kCluster * kCluster));
  launch_dependent({.grid = blocks, .block = kGroupedThreads, .shared_bytes = Plan::kBytes, .cluster = kCluster},
                   device.stream(), kernel, maps, scaled, result);
  check_launch("scaled_linear");
  return true;
}

template <class Plan>
bool launch(const ScaledGemmArgs& args, const RowCount& used, CudaDevice& device) {
  if (!args.accumulate) {
    return launch<Plan>(args, used, WrittenResult{static_cast<const __nv_bfloat16*>(args.bias)}, device);
  }
  if (args.c_type == DType::kBf16) return launch<Plan>(args, used, AddedResult{}, device);
  return launch<Plan>(args, used, WideAddedResult{}, device);
}

}  // namespace

DenseChoice dense_choice(const ScaledGemmArgs& args, int sms) {
  if (!fits(args) || (!args.accumulate && args.c_type != DType::kBf16)) return {DenseTiles::kNone, 0};
  const std::int64_t wide = time_of_tiles(args, WideTokensPlan::kColumns, WideTokensPlan::kWeightRows, kWideTime, sms);
  const std::int64_t tall = time_of_tiles(args, TallTokensPlan::kColumns, TallTokensPlan::kWeightRows, kTallTime, sms);
  return wide < tall || !fits_tall(args) ? DenseChoice{DenseTiles::kWide, wide} : DenseChoice{DenseTiles::kTall, tall};
}

std::int64_t cublas_time(const ScaledGemmArgs& args, int sms) {
  return time_of_tiles(args, 128, 128, kCublasTime, sms);
}

bool launch_dense(const ScaledGemmArgs& args, DenseTiles tiles, const TensorView& rows, CudaDevice& device) {
  if (tiles == DenseTiles::kNone || (tiles == DenseTiles::kTall && !fits_tall(args))) return false;
  const RowCount used = rows ? row_count(rows) : RowCount{.used = nullptr, .capacity = args.m};
  return tiles == DenseTiles::kWide ? launch<WideTokensPlan>(args, used, device)
                                    : launch<TallTokensPlan>(args, used, device);
}

}  // namespace hone
