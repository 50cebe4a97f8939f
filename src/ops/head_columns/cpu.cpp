#include <algorithm>

#include "ops/head_columns/head_columns.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// Copies `columns` columns of each head, from column `from` of x to column `to` of y, and fills the rest of y's heads,
// if they are longer, with zeros. The heads of all rows are consecutive, so that rows and heads are one loop.
template <class T>
void copy_columns(const KernelCall& call, std::int64_t from, std::int64_t to) {
  const auto& a = call.attributes_as<HeadColumnsAttributes>();
  const TensorView& x = call.in(0);
  const TensorView& y = call.out(0);
  const std::int64_t from_width = x.row_size() / a.heads;
  const std::int64_t to_width = y.row_size() / a.heads;
  const T* xs = x.as<T>();
  T* ys = y.as<T>();
  for_rows(y.rows() * a.heads, a.head_dim, [&](std::int64_t head) {
    T* begin = std::fill_n(ys + head * to_width, to, T(0));
    T* end = std::copy_n(xs + head * from_width + from, a.columns, begin);
    std::fill(end, ys + (head + 1) * to_width, T(0));
  });
  zero_tail(y);
}

}  // namespace

void register_head_columns_cpu(KernelRegistry& registry) {
  registry.add("head_columns", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  const auto& a = call.attributes_as<HeadColumnsAttributes>();
                  for_floating(call.in(0).dtype(), [&]<class T>() { copy_columns<T>(call, a.first, 0); });
                },
                {}});
  registry.add("head_columns_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  const auto& a = call.attributes_as<HeadColumnsAttributes>();
                  for_floating(call.in(0).dtype(), [&]<class T>() { copy_columns<T>(call, 0, a.first); });
                },
                {}});
}

}  // namespace hone
