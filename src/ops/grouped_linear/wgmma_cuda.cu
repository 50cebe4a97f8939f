#include "ops/grouped_linear/wgmma_cuda.h"

#include "ops/grouped_linear/wgmma_product.cuh"

namespace hone {
namespace {

// Tiles of 256 columns. y and dx leave 128 columns at a time, which leaves room for a fourth stage; dW needs the
// staging memory for a whole tile.
template <GroupedProduct kProduct>
using RowsPlan = GroupedPlan<kProduct, 256, 4, 128>;
using WeightPlan = GroupedPlan<GroupedProduct::kWeight, 256, 3, 256>;

bool takes(const GroupedOperands& operands) {
  const auto aligned = [](const TensorView& view) {
    return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.row_size() % 8 == 0 && view.elements() > 0;
  };
  return operands.rows.dtype() == DType::kBf16 && operands.other.dtype() == DType::kBf16 &&
         cuda_device().properties().major == 9 && aligned(operands.rows) && aligned(operands.other) &&
         aligned(operands.out);
}

template <class Plan, class Out>
bool launch(const GroupedMaps& maps, const GroupedArgs& args, cudaStream_t stream) {
  const auto kernel = grouped_product<Plan, Out>;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < kGroupedThreads) return false;  // built for a device without wgmma
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes),
             "cudaFuncSetAttribute");
  launch_dependent({static_cast<unsigned>(cuda_device().sm_count()), kGroupedThreads, Plan::kBytes}, stream, kernel,
                   maps, args);
  check_launch("grouped_product");
  return true;
}

// Matrices of `height` rows, one for each expert, in boxes of `box` rows.
CUtensorMap matrix_boxes(const TensorView& view, std::int64_t experts, std::int64_t box) {
  const std::int64_t height = view.capacity() / experts;
  return row_boxes(view.data, experts, height * view.row_size(), height, view.row_size(), 1, box);
}

// Rows in boxes of `box` rows.
CUtensorMap token_boxes(const TensorView& view, std::int64_t box) {
  return row_boxes(view.data, view.capacity(), view.row_size(), 1, view.row_size(), box);
}

template <GroupedProduct kProduct>
bool launch_rows(const GroupedOperands& operands, cudaStream_t stream) {
  if (!takes(operands)) return false;
  const std::int64_t box = kProduct == GroupedProduct::kForward ? kGroupedRows : kGroupedDepth;
  const GroupedMaps maps{.first = matrix_boxes(operands.other, operands.experts, box),
                         .second = token_boxes(operands.rows, 64),
                         .few = token_boxes(operands.rows, 8),
                         .out = token_boxes(operands.out, 64)};
  const GroupedArgs args{.start = operands.start.as<std::int32_t>(),
                         .experts = static_cast<int>(operands.experts),
                         .rows = static_cast<int>(operands.out.row_size()),
                         .columns = 0,
                         .depth = static_cast<int>(operands.rows.row_size()),
                         .capacity = operands.out.capacity(),
                         .out = operands.out.data};
  return launch<RowsPlan<kProduct>, __nv_bfloat16>(maps, args, stream);
}

}  // namespace

bool launch_grouped_forward(const GroupedOperands& operands, cudaStream_t stream) {
  return launch_rows<GroupedProduct::kForward>(operands, stream);
}

bool launch_grouped_input(const GroupedOperands& operands, cudaStream_t stream) {
  return launch_rows<GroupedProduct::kInput>(operands, stream);
}

bool launch_grouped_weight(const GroupedOperands& operands, cudaStream_t stream) {
  if (!takes(operands)) return false;
  const TensorView& out = operands.out;
  const bool narrow = out.dtype() == DType::kBf16;
  if (!narrow && out.dtype() != DType::kF32) return false;
  const CUtensorMap second = token_boxes(operands.other, 64);
  const GroupedMaps maps{.first = token_boxes(operands.rows, 64),
                         .second = second,
                         .few = second,
                         .out = narrow ? matrix_boxes(out, operands.experts, 64) : second};
  const GroupedArgs args{.start = operands.start.as<std::int32_t>(),
                         .experts = static_cast<int>(operands.experts),
                         .rows = static_cast<int>(operands.rows.row_size()),
                         .columns = static_cast<int>(operands.other.row_size()),
                         .depth = 0,
                         .capacity = operands.rows.capacity(),
                         .out = out.data,
                         .accumulated = operands.accumulated};
  return narrow ? launch<WeightPlan, __nv_bfloat16>(maps, args, stream) : launch<WeightPlan, float>(maps, args, stream);
}

}  // namespace hone
