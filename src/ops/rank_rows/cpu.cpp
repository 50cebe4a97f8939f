#include <cstring>

#include "ops/rank_rows/blocks.h"
#include "ops/rank_rows/rank_rows.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void add_bias_to_rows(T* ys, std::int64_t rows, const TensorView& bias) {
  const std::int64_t n = bias.elements();
  const T* addends = bias.as<T>();
  for_rows(rows, n, [&](std::int64_t row) {
    T* to = ys + row * n;
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(widen(to[i]) + widen(addends[i]));
  });
}

// Clears the rows of y for which there are no tokens.
void zero_absent_rows(const TensorView& y, const RowBlocks& blocks) {
  std::memset(y.data + blocks.bytes(), 0, y.type->bytes() - blocks.bytes());
}

// The ranks of a tensor group compute the same batch, so that as many rows are in use on each.
void sum_rows(const KernelCall& call) {
  const TensorView& x = call.in(RankRowsSumIn::x);
  const TensorView& y = call.out(0);
  const RowBlocks blocks(x.rows(), y);
  std::byte* const whole = call.workspace.data();
  blocks.copy(whole, x.data, static_cast<std::size_t>(x.rows() * x.row_size()) * size_of(x.dtype()));
  blocks.sum(whole);
  blocks.copy(y.data, whole + blocks.begin(), blocks.bytes());
  if (call.in(RankRowsSumIn::bias)) {
    for_floating(x.dtype(),
                 [&]<class T>() { add_bias_to_rows(y.as<T>(), blocks.rows(), call.in(RankRowsSumIn::bias)); });
  }
  zero_absent_rows(y, blocks);
}

void gather_rows_of_ranks(const KernelCall& call) {
  const TensorView& y = call.out(0);
  const RowBlocks blocks(y.rows(), call.in(0));
  blocks.copy(y.data + blocks.begin(), call.in(0).data, blocks.bytes());
  blocks.gather(y.data);
  zero_tail(y);
}

void take_rows(const KernelCall& call) {
  const TensorView& x = call.in(0);
  const TensorView& y = call.out(0);
  const RowBlocks blocks(x.rows(), y);
  blocks.copy(y.data, x.data + blocks.begin(), blocks.bytes());
  zero_absent_rows(y, blocks);
}

}  // namespace

void register_rank_rows_cpu(KernelRegistry& registry) {
  registry.add("rank_rows_sum", DeviceKind::kCpu, {sum_rows, summed_bytes});
  registry.add("rank_rows_gather", DeviceKind::kCpu, {gather_rows_of_ranks, {}});
  registry.add("rank_rows_take", DeviceKind::kCpu, {take_rows, {}});
}

}  // namespace hone
