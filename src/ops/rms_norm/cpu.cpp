#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm/row.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void forward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(0);
  const std::int64_t n = x.row_size();
  const T* xs = x.as<T>();
  const T* weight = call.in(1).as<T>();
  T* ys = call.out(0).as<T>();
  A* rstds = call.out(1).as<A>();
  const auto epsilon = static_cast<A>(call.attributes_as<RmsNormAttributes>().epsilon);
  for_rows(x.rows(), n,
           [&](std::int64_t row) { rstds[row] = rms_norm_row(xs + row * n, weight, n, epsilon, ys + row * n); });
  zero_tail(call.out(0));
  zero_tail(call.out(1));
}

// dweight is summed in the order of rows.
template <class T>
void backward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(1);
  const std::int64_t n = x.row_size();
  const std::int64_t rows = x.rows();
  const T* dys = call.in(0).as<T>();
  const T* xs = x.as<T>();
  const T* weight = call.in(2).as<T>();
  const A* rstds = call.in(3).as<A>();
  T* dxs = call.out(0).as<T>();
  for_rows(rows, 2 * n, [&](std::int64_t row) {
    rms_norm_row_backward(dys + row * n, xs + row * n, weight, rstds[row], n, dxs + row * n);
  });
  zero_tail(call.out(0));
  if (!call.in(4)) return;
  A* dweight = call.out(1).as<A>();
  parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < rows; ++row) {
      rms_norm_row_weight_gradient(dys + row * n, xs + row * n, rstds[row], begin, end, dweight);
    }
  });
}

}  // namespace

void register_rms_norm_cpu(KernelRegistry& registry) {
  registry.add(
      "rms_norm", DeviceKind::cpu,
      {[](const KernelCall& call) { for_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); }, {}});
  registry.add(
      "rms_norm_backward", DeviceKind::cpu,
      {[](const KernelCall& call) { for_floating(call.in(0).dtype(), [&]<class T>() { backward<T>(call); }); }, {}});
}

}  // namespace hone
