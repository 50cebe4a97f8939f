#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/toy_square/toy_square.h"

namespace hone {
namespace {

// Arithmetic in Accumulator<T>, one rounding at the end; rows past the count become zero.
template <class T>
void toy_square_forward(const KernelCall& call) {
  const TensorView& x = call.in(0);
  const T* xs = x.as<T>();
  T* ys = call.out(0).as<T>();
  const auto factor = static_cast<Accumulator<T>>(call.attributes_as<ToySquareAttributes>().factor);
  parallel_for(x.rows() * x.row_size(), 16384, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ys[i] = static_cast<T>(factor * widen(xs[i]) * widen(xs[i]));
  });
  zero_tail(call.out(0));
}

template <class T>
void toy_square_backward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(ToySquareBackwardIn::x);
  const T* dys = call.in(ToySquareBackwardIn::dy).as<T>();
  const T* xs = x.as<T>();
  T* dxs = call.out(0).as<T>();
  const auto factor = static_cast<A>(call.attributes_as<ToySquareAttributes>().factor);
  parallel_for(x.rows() * x.row_size(), 16384, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) dxs[i] = static_cast<T>(A(2) * factor * widen(xs[i]) * widen(dys[i]));
  });
  zero_tail(call.out(0));
}

}  // namespace

void register_toy_square_cpu(KernelRegistry& registry) {
  registry.add("toy_square", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(0).dtype(), [&]<class T>() { toy_square_forward<T>(call); });
                },
                {}});
  registry.add("toy_square_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(ToySquareBackwardIn::x).dtype(),
                               [&]<class T>() { toy_square_backward<T>(call); });
                },
                {}});
}

}  // namespace hone
