#include <cstring>

#include "ops/ranks/communication.h"
#include "ops/ranks/ranks.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void add_bias(const TensorView& y, const TensorView& bias) {
  const std::int64_t n = y.row_size();
  T* ys = y.as<T>();
  const T* addends = bias.as<T>();
  for_rows(y.rows(), n, [&](std::int64_t row) {
    T* to = ys + row * n;
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(widen(to[i]) + widen(addends[i]));
  });
}

void sum(const KernelCall& call) {
  const TensorView& x = call.in(RanksSumIn::x);
  const TensorView& y = call.out(0);
  // The ranks of a tensor group compute the same batch, so that as many rows are in use on each.
  const std::int64_t elements = x.rows() * x.row_size();
  std::memcpy(y.data, x.data, static_cast<std::size_t>(elements) * size_of(x.dtype()));
  tensor_group().all_reduce(y.data, x.dtype(), static_cast<std::size_t>(elements));
  if (call.in(RanksSumIn::bias)) {
    for_floating(x.dtype(), [&]<class T>() { add_bias<T>(y, call.in(RanksSumIn::bias)); });
  }
  zero_tail(y);
}

// The blocks [rows, n] of all ranks follow each other in the workspace.
void ranks_gather(const KernelCall& call) {
  const TensorView& x = call.in(0);
  const auto row = static_cast<std::size_t>(x.row_size()) * size_of(x.dtype());
  const std::size_t block = static_cast<std::size_t>(x.rows()) * row;
  const auto ranks = static_cast<std::size_t>(call.attributes_as<RanksGatherAttributes>().ranks);
  std::byte* const all = call.workspace.data();
  std::memcpy(all + static_cast<std::size_t>(tensor_group().rank()) * block, x.data, block);
  gather_blocks(all, block);
  for_rows(x.rows(), call.out(0).row_size(), [&](std::int64_t i) {
    for (std::size_t r = 0; r < ranks; ++r) {
      std::memcpy(call.out(0).data + (static_cast<std::size_t>(i) * ranks + r) * row,
                  all + r * block + static_cast<std::size_t>(i) * row, row);
    }
  });
  zero_tail(call.out(0));
}

std::size_t bytes_of_output(InputTypes, std::span<const Type> outputs, const Attributes&) { return outputs[0].bytes(); }

template <class Sum, class More>
void add_to_sum(const TensorView& sum, const std::byte* more) {
  Sum* to = sum.as<Sum>();
  const auto* addends = reinterpret_cast<const More*>(more);
  for (std::int64_t i = 0; i < sum.elements(); ++i) to[i] = static_cast<Sum>(widen(to[i]) + widen(addends[i]));
}

void accumulate(const KernelCall& call) {
  const TensorView& dy = call.in(RanksAccumulateIn::dy);
  std::byte* const sums = call.workspace.data();
  std::memcpy(sums, dy.data, dy.type->bytes());
  tensor_group().all_reduce(sums, dy.dtype(), static_cast<std::size_t>(dy.elements()));
  for_floating(call.out(0).dtype(), [&]<class Sum>() {
    dy.dtype() == call.out(0).dtype() ? add_to_sum<Sum, Sum>(call.out(0), sums)
                                      : add_to_sum<Sum, Accumulator<Sum>>(call.out(0), sums);
  });
}

}  // namespace

void register_ranks_cpu(KernelRegistry& registry) {
  registry.add("ranks_sum", DeviceKind::kCpu, {sum, {}});
  registry.add("ranks_gather", DeviceKind::kCpu, {ranks_gather, bytes_of_output});
  registry.add("ranks_accumulate", DeviceKind::kCpu, {accumulate, summed_gradient_bytes});
}

}  // namespace hone
