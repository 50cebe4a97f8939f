// Launches the products of wgmma_rows.cuh, and of many rows those of wgmma_dense.cuh.
#include "ops/scaled_linear/rows_cuda.h"

#include <algorithm>

#include "core/error.h"
#include "ops/cuda_kernel.cuh"
#include "ops/scaled_grouped_linear/byte_boxes.cuh"
#include "ops/scaled_linear/dense_cuda.h"
#include "ops/scaled_linear/scaled_linear.h"
#include "ops/scaled_linear/wgmma_rows.cuh"

namespace hone {
namespace {

// Tokens of a tile of 128 rows of W, and the time of the product (DenseChoice).
struct RowsTiling {
  std::int64_t width = 0;
  std::int64_t time = 0;
};

// Returns the tiling that takes the least time, of the widths that divide `rows` evenly. The time of a stage is in
// proportion to max(width, 56) + 60 on an H200 (docs/lab-notes.md, Products of any number of rows).
RowsTiling tiling_of(std::int64_t rows, std::int64_t n, int sms) {
  RowsTiling best;
  const std::int64_t most_groups = ceil_div(rows, NarrowRowsPlan::kColumns);
  for (std::int64_t groups = ceil_div(rows, ManyRowsPlan::kColumns); groups <= most_groups; ++groups) {
    const std::int64_t width = ceil_div(ceil_div(rows, groups), 16) * 16;
    const std::int64_t tiles = n / ManyRowsPlan::kRows * ceil_div(rows, width);
    const std::int64_t time = ceil_div(tiles, sms) * (std::max<std::int64_t>(width, 56) + 60);
    if (best.width == 0 || time < best.time) best = {width, time};
  }
  return best;
}

// Multiplies tokens as rows of tiles (wgmma_dense.cuh) if that takes less time. The scales of W must be as cuBLASLt has
// them, with rows of a multiple of 4.
bool launch_as_rows(const KernelCall& call, std::int64_t time) {
  using In = ScaledLinearIn;
  const TensorView& x = call.in(In::x);
  const TensorView& weight_scale = call.in(In::weight_scale);
  if (weight_scale.row_size() % 4 != 0) return false;
  CudaDevice& device = cuda_device_of(call);
  const ScaledGemmArgs args{.m = x.capacity(),
                            .n = call.out(0).row_size(),
                            .k = x.row_size(),
                            .a = x.as<std::uint8_t>(),
                            .a_scale = call.in(In::x_scale).as<float>(),
                            .b = call.in(In::weight).as<std::uint8_t>(),
                            .b_scale = weight_scale.as<float>(),
                            .c = call.out(0).data,
                            .bias = cuda_data<__nv_bfloat16>(call.in(In::bias))};
  const DenseChoice choice = dense_choice(args, device.sm_count());
  return choice.time < time && launch_dense(args, choice.tiles, x, device);
}

template <class Plan>
void launch(const KernelCall& call, int width, cudaStream_t stream) {
  using In = ScaledLinearIn;
  const TensorView& x = call.in(In::x);
  const TensorView& weight = call.in(In::weight);
  const TensorView& out = call.out(0);
  const TensorView& weight_scale = call.in(In::weight_scale);
  const TensorView& token_scale = call.in(In::x_scale);
  const std::int64_t n = out.row_size();
  const ScaledMaps maps{.weight = byte_boxes(weight, Plan::kRows),
                        .tokens = byte_boxes(x, width),
                        .out = row_boxes(out.data, out.capacity(), n, 1, n, 64)};
  const RowsArgs args{.scaled = {.grouped = {.start = nullptr,
                                             .experts = 1,
                                             .rows = static_cast<int>(n),
                                             .columns = 0,
                                             .depth = static_cast<int>(x.row_size()),
                                             .capacity = out.capacity(),
                                             .out = out.data,
                                             .used = row_count(x),
                                             .width = width},
                                 .weight_scale = weight_scale.as<float>(),
                                 .weight_stride = weight_scale.row_size(),
                                 .token_scale = token_scale.as<float>(),
                                 .token_stride = token_scale.row_size()},
                      .bias = cuda_data<__nv_bfloat16>(call.in(In::bias)),
                      .early_weight = weight.constant};
  const auto kernel = rows_product<Plan>;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < Plan::kThreads) {  // built for a device without wgmma
    throw Error("quantization",
                text_of("w8a8_fp8, but ", cuda_device().name(), " cannot multiply e4m3; compute capability 9.0 can"),
                "use fp8 or none");
  }
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes),
             "cudaFuncSetAttribute");
  const std::int64_t tiles = n / Plan::kRows * ceil_div(out.capacity(), width);
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(tiles, cuda_device().sm_count()));
  launch_dependent({blocks, Plan::kThreads, Plan::kBytes}, stream, kernel, maps, args);
  check_launch("scaled_linear");
}

}  // namespace

void launch_scaled_rows(const KernelCall& call, cudaStream_t stream) {
  const TensorView& out = call.out(0);
  if (out.elements() == 0) return;
  if (out.capacity() <= FewRowsPlan::kColumns) {
    return launch<FewRowsPlan>(call, static_cast<int>(ceil_div(out.capacity(), 8) * 8), stream);
  }
  const RowsTiling tiling = tiling_of(out.capacity(), out.row_size(), cuda_device().sm_count());
  if (launch_as_rows(call, tiling.time)) return;
  const int width = static_cast<int>(tiling.width);
  if (width <= NarrowRowsPlan::kColumns) return launch<NarrowRowsPlan>(call, width, stream);
  launch<ManyRowsPlan>(call, width, stream);
}

}  // namespace hone
