#include "ops/context_rows/blocks.h"
#include "ops/context_rows/context_rows.h"
#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// Copies rows of `units` units. Row r goes from row from_index[r] to row to_index[r], or r if there is no index; rows
// from `used` on, and those with an index below 0, are cleared in `to` if `clears` is set, and otherwise left.
template <class Unit>
struct RowCopy {
  const Unit* from;
  std::int64_t from_stride;  // units from one row to the next
  const std::int32_t* from_index;
  Unit* to;
  std::int64_t to_stride;
  const std::int32_t* to_index;
  RowCount used;
  std::int64_t units;
  bool clears;
};

template <class Unit>
__global__ void __launch_bounds__(kThreads) copy_rows_kernel(RowCopy<Unit> copy) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t from = copy.from_index != nullptr ? copy.from_index[row] : row;
  const std::int64_t to = copy.to_index != nullptr ? copy.to_index[row] : row;
  const bool absent = row >= copy.used.get() || from < 0 || to < 0;
  if (absent && !copy.clears) return;
  for (std::int64_t i = threadIdx.x; i < copy.units; i += kThreads) {
    copy.to[(absent ? row : to) * copy.to_stride + i] = absent ? Unit{} : copy.from[from * copy.from_stride + i];
  }
}

// Rows in bytes; see RowCopy.
struct RowBytes {
  const std::byte* from;
  std::int64_t from_stride;
  const std::int32_t* from_index;
  std::byte* to;
  std::int64_t to_stride;
  const std::int32_t* to_index;
  bool clears;
};

void copy_rows(const KernelCall& call, const RowBytes& rows, std::int64_t count, RowCount used, std::int64_t width) {
  if (count == 0) return;
  const auto launch = [&]<class Unit>() {
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(Unit));
    const RowCopy<Unit> copy{reinterpret_cast<const Unit*>(rows.from),
                             rows.from_stride / kSize,
                             rows.from_index,
                             reinterpret_cast<Unit*>(rows.to),
                             rows.to_stride / kSize,
                             rows.to_index,
                             used,
                             width / kSize,
                             rows.clears};
    copy_rows_kernel<Unit><<<static_cast<unsigned>(count), kThreads, 0, stream_of(call)>>>(copy);
    check_launch("context_rows");
  };
  // Widths and strides are multiples of the size of an element; `from` and `to` may begin at any column.
  const auto fits = [&](std::size_t unit) {
    const auto size = static_cast<std::int64_t>(unit);
    const auto place = reinterpret_cast<std::uintptr_t>(rows.from) | reinterpret_cast<std::uintptr_t>(rows.to);
    return width % size == 0 && rows.from_stride % size == 0 && rows.to_stride % size == 0 && place % unit == 0;
  };
  if (fits(sizeof(uint4))) {
    launch.template operator()<uint4>();
  } else if (fits(sizeof(std::uint32_t))) {
    launch.template operator()<std::uint32_t>();
  } else {
    launch.template operator()<std::uint16_t>();
  }
}

std::int64_t row_bytes(const TensorView& view) {
  return view.row_size() * static_cast<std::int64_t>(size_of(view.dtype()));
}

RowCount all_rows(const TensorView& view) { return {nullptr, view.capacity()}; }

void gather(const KernelCall& call) {
  const TensorView& x = call.in(ContextGatherIn::x);
  const TensorView& y = call.out(0);
  const std::int64_t width = row_bytes(y);
  const RankBlocks blocks(call.workspace.data(), y.type->bytes());
  const std::byte* const from = x.data + (row_bytes(x) - width);
  copy_rows(call, {from, row_bytes(x), nullptr, blocks.mine(), width, nullptr, false}, x.capacity(), all_rows(x),
            width);
  blocks.gather();
  const auto* index = cuda_data<std::int32_t>(call.in(ContextGatherIn::rows));
  copy_rows(call, {call.workspace.data(), width, index, y.data, width, nullptr, true}, y.capacity(), all_rows(y),
            width);
}

// Rows that no token has are summed too, and not used.
void scatter(const KernelCall& call) {
  const TensorView& sums = call.in(ContextScatterIn::sums);
  const TensorView& to = call.out(0);
  const std::int64_t width = row_bytes(sums);
  const RankBlocks blocks(call.workspace.data(), sums.type->bytes());
  check_cuda(cudaMemsetAsync(call.workspace.data(), 0, sums.type->bytes(), stream_of(call)), "cudaMemset");
  const auto* index = cuda_data<std::int32_t>(call.in(ContextScatterIn::rows));
  copy_rows(call, {sums.data, width, nullptr, call.workspace.data(), width, index, false}, sums.capacity(),
            all_rows(sums), width);
  blocks.sum(sums.dtype());
  std::byte* const at = to.data + (row_bytes(to) - width);
  copy_rows(call, {blocks.mine(), width, nullptr, at, row_bytes(to), nullptr, true}, to.capacity(), row_count(to),
            width);
}

void take(const KernelCall& call) {
  const TensorView& x = call.in(ContextTakeIn::x);
  const TensorView& y = call.out(0);
  const auto* index = cuda_data<std::int32_t>(call.in(ContextTakeIn::tokens));
  copy_rows(call, {x.data, row_bytes(x), index, y.data, row_bytes(y), nullptr, true}, y.capacity(), row_count(y),
            row_bytes(y));
}

void place(const KernelCall& call) {
  const TensorView& dy = call.in(ContextPlaceIn::dy);
  const TensorView& dx = call.out(0);
  check_cuda(cudaMemsetAsync(dx.data, 0, dx.type->bytes(), stream_of(call)), "cudaMemset");
  const auto* index = cuda_data<std::int32_t>(call.in(ContextPlaceIn::tokens));
  copy_rows(call, {dy.data, row_bytes(dy), nullptr, dx.data, row_bytes(dx), index, false}, dy.capacity(), row_count(dy),
            row_bytes(dy));
}

std::size_t scattered_bytes(InputTypes inputs, std::span<const Type>, const Attributes&) {
  return required(inputs, ContextScatterIn::sums, "context_rows_scatter").bytes();
}

}  // namespace

void register_context_rows_cuda(KernelRegistry& registry) {
  registry.add("context_rows_gather", DeviceKind::kCuda, {gather, gathered_bytes});
  registry.add("context_rows_scatter", DeviceKind::kCuda, {scatter, scattered_bytes});
  registry.add("context_rows_sum", DeviceKind::kCuda, {sum_context, {}});
  registry.add("context_rows_take", DeviceKind::kCuda, {take, {}});
  registry.add("context_rows_place", DeviceKind::kCuda, {place, {}});
}

}  // namespace hone
