#include <algorithm>
#include <cstring>

#include "ops/context_rows/blocks.h"
#include "ops/context_rows/context_rows.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

std::size_t row_bytes(const TensorView& view) {
  return static_cast<std::size_t>(view.row_size()) * size_of(view.dtype());
}

// Calls copy(token, row) for each token of the micro-batch, whose row in the blocks of all ranks is `row`.
template <class Copy>
void for_each_token(const TensorView& rows, std::int64_t work, const Copy& copy) {
  const auto* row_of = rows.as<std::int32_t>();
  for_rows(rows.capacity(), work, [&](std::int64_t token) {
    const std::int32_t row = row_of[token];
    HONE_ASSERT(row >= -1 && row < rows.capacity(), "token ", token, " is in row ", row, " of ", rows.capacity());
    copy(token, row);
  });
}

void context_rows_gather(const KernelCall& call) {
  const TensorView& x = call.in(ContextGatherIn::x);
  const TensorView& y = call.out(0);
  const std::size_t width = row_bytes(y);
  const std::size_t first = row_bytes(x) - width;
  const RankBlocks blocks(call.workspace.data(), y.type->bytes());
  for_rows(x.capacity(), x.row_size(), [&](std::int64_t row) {
    const auto at = static_cast<std::size_t>(row);
    std::memcpy(blocks.mine() + at * width, x.data + at * row_bytes(x) + first, width);
  });
  blocks.gather();
  for_each_token(call.in(ContextGatherIn::rows), y.row_size(), [&](std::int64_t token, std::int32_t row) {
    std::byte* const to = y.data + static_cast<std::size_t>(token) * width;
    if (row < 0) {
      std::memset(to, 0, width);
    } else {
      std::memcpy(to, call.workspace.data() + static_cast<std::size_t>(row) * width, width);
    }
  });
}

void scatter(const KernelCall& call) {
  const TensorView& sums = call.in(ContextScatterIn::sums);
  const TensorView& to = call.out(0);
  const std::size_t width = row_bytes(sums);
  const std::size_t first = row_bytes(to) - width;
  const RankBlocks blocks(call.workspace.data(), sums.type->bytes());
  // Rows that no token has are summed too, and not used.
  std::memset(call.workspace.data(), 0, sums.type->bytes());
  for_each_token(call.in(ContextScatterIn::rows), sums.row_size(), [&](std::int64_t token, std::int32_t row) {
    if (row < 0) return;
    std::memcpy(call.workspace.data() + static_cast<std::size_t>(row) * width,
                sums.data + static_cast<std::size_t>(token) * width, width);
  });
  blocks.sum(sums.dtype());
  for_rows(to.capacity(), sums.row_size(), [&](std::int64_t row) {
    const auto at = static_cast<std::size_t>(row);
    std::byte* const columns = to.data + at * row_bytes(to) + first;
    if (row < to.rows()) {
      std::memcpy(columns, blocks.mine() + at * width, width);
    } else {
      std::memset(columns, 0, width);
    }
  });
}

void context_rows_take(const KernelCall& call) {
  const TensorView& x = call.in(ContextTakeIn::x);
  const TensorView& y = call.out(0);
  const auto* tokens = call.in(ContextTakeIn::tokens).as<std::int32_t>();
  const std::size_t width = row_bytes(x);
  for_rows(y.rows(), x.row_size(), [&](std::int64_t row) {
    HONE_ASSERT(tokens[row] >= 0 && tokens[row] < x.capacity(), "token ", tokens[row], " of ", x.capacity());
    std::memcpy(y.data + static_cast<std::size_t>(row) * width, x.data + static_cast<std::size_t>(tokens[row]) * width,
                width);
  });
  zero_tail(y);
}

void place(const KernelCall& call) {
  const TensorView& dy = call.in(ContextPlaceIn::dy);
  const TensorView& dx = call.out(0);
  const auto* tokens = call.in(ContextPlaceIn::tokens).as<std::int32_t>();
  const std::size_t width = row_bytes(dy);
  std::memset(dx.data, 0, dx.type->bytes());
  for_rows(dy.rows(), dy.row_size(), [&](std::int64_t row) {
    HONE_ASSERT(tokens[row] >= 0 && tokens[row] < dx.capacity(), "token ", tokens[row], " of ", dx.capacity());
    std::memcpy(dx.data + static_cast<std::size_t>(tokens[row]) * width,
                dy.data + static_cast<std::size_t>(row) * width, width);
  });
}

std::size_t scattered_bytes(InputTypes inputs, std::span<const Type>, const Attributes&) {
  return required(inputs, ContextScatterIn::sums, "context_rows_scatter").bytes();
}

}  // namespace

void register_context_rows_cpu(KernelRegistry& registry) {
  registry.add("context_rows_gather", DeviceKind::kCpu, {context_rows_gather, gathered_bytes});
  registry.add("context_rows_scatter", DeviceKind::kCpu, {scatter, scattered_bytes});
  registry.add("context_rows_sum", DeviceKind::kCpu, {sum_context, {}});
  registry.add("context_rows_take", DeviceKind::kCpu, {context_rows_take, {}});
  registry.add("context_rows_place", DeviceKind::kCpu, {place, {}});
}

}  // namespace hone
