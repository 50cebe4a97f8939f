// Gathers rows by index, for any dtype.
#pragma once

#include "ops/cuda_kernel.cuh"

namespace hone {

inline constexpr int kGatherThreads = 256;
inline constexpr int kGatherUnits = 4;  // units that a thread copies

template <class Unit, bool kAbsentIsNan>
__global__ void __launch_bounds__(kGatherThreads)
    gather_kernel(const Unit* from, RowCount from_rows, const std::int32_t* index, RowCount rows, std::int64_t units,
                  Unit* to) {
  const std::int64_t row = blockIdx.x;
  begin_dependent_kernel();
  const bool is_used = row < rows.get();
  const std::int64_t found = index[row];  // loaded before the count is known; there is memory for every row
  const bool is_there = found >= 0 && found < from_rows.get();
  const std::int64_t picked = is_used && is_there ? found : -1;
  Unit other{};
  if (kAbsentIsNan && is_used && !is_there) {
    for (auto& value : other.values) value = static_cast<std::remove_reference_t<decltype(value)>>(~0u);
  }
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kGatherThreads * kGatherUnits + threadIdx.x;
  Unit held[kGatherUnits];
#pragma unroll
  for (int i = 0; i < kGatherUnits; ++i) {
    const std::int64_t at = first + i * kGatherThreads;
    held[i] = picked >= 0 && at < units ? from[picked * units + at] : other;
  }
#pragma unroll
  for (int i = 0; i < kGatherUnits; ++i) {
    const std::int64_t at = first + i * kGatherThreads;
    if (at < units) to[row * units + at] = held[i];
  }
}

// Computes to[i] = from[index[i]]; rows past the count of `to` become zeros. An index that is not a row in use of
// `from` gives a row of set bits, which is NaN for floating types, or zeros.
template <bool kAbsentIsNan = true>
inline void launch_gather(const KernelCall& call, const TensorView& from, const TensorView& index,
                          const TensorView& to) {
  const std::int64_t row_bytes = from.row_size() * static_cast<std::int64_t>(size_of(from.dtype()));
  if (to.capacity() == 0 || row_bytes == 0) return;
  const auto launch = [&]<class Unit>() {
    const std::int64_t units = row_bytes / static_cast<std::int64_t>(sizeof(Unit));
    const dim3 grid(static_cast<unsigned>(to.capacity()),
                    static_cast<unsigned>(ceil_div(units, kGatherThreads * kGatherUnits)));
    launch_dependent({grid, kGatherThreads}, stream_of(call), gather_kernel<Unit, kAbsentIsNan>,
                     reinterpret_cast<const Unit*>(from.data), row_count(from), cuda_data<std::int32_t>(index),
                     row_count(to), units, reinterpret_cast<Unit*>(to.data));
  };
  if (row_bytes % 16 == 0) {
    launch.template operator()<Pack<std::uint32_t, 4>>();
  } else if (row_bytes % 4 == 0) {
    launch.template operator()<Pack<std::uint32_t, 1>>();
  } else {
    launch.template operator()<Pack<std::uint8_t, 1>>();
  }
  check_launch("gather of rows");
}

}  // namespace hone
