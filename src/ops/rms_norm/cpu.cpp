#include <cmath>

#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
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
  for_rows(x.rows(), n, [&](std::int64_t row) {
    const T* in = xs + row * n;
    T* out = ys + row * n;
    const A squares = lane_sum<A>(n, [&](std::int64_t i) { return widen(in[i]) * widen(in[i]); });
    const A rstd = A(1) / std::sqrt(squares / static_cast<A>(n) + epsilon);
    rstds[row] = rstd;
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(widen(in[i]) * rstd * widen(weight[i]));
  });
  zero_tail(call.out(0));
  zero_tail(call.out(1));
}

// dx = rstd * (w dy - x rstd^2 mean(w dy x)); dweight += sum over rows of dy x rstd, in the order of rows.
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
    const T* dy = dys + row * n;
    const T* in = xs + row * n;
    T* dx = dxs + row * n;
    const A rstd = rstds[row];
    const A dot = lane_sum<A>(n, [&](std::int64_t i) { return widen(dy[i]) * widen(weight[i]) * widen(in[i]); });
    const A scale = dot * rstd * rstd / static_cast<A>(n);
    for (std::int64_t i = 0; i < n; ++i) {
      dx[i] = static_cast<T>(rstd * (widen(dy[i]) * widen(weight[i]) - widen(in[i]) * scale));
    }
  });
  zero_tail(call.out(0));
  if (!call.in(4)) return;
  A* dweight = call.out(1).as<A>();
  parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* dy = dys + row * n;
      const T* in = xs + row * n;
      const A rstd = rstds[row];
      for (std::int64_t i = begin; i < end; ++i) dweight[i] += widen(dy[i]) * widen(in[i]) * rstd;
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
