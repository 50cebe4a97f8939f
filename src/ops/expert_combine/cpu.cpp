#include "ops/expert_combine/expert_combine.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void expert_combine_forward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& position = call.in(ExpertCombineIn::position);
  const auto* rows = position.as<std::int32_t>();
  const T* y = call.in(ExpertCombineIn::y).as<T>();
  const A* weight = call.in(ExpertCombineIn::weight).as<A>();
  T* out = call.out(0).as<T>();
  const std::int64_t top_k = position.row_size();
  const std::int64_t n = call.out(0).row_size();
  for_rows(position.rows(), n * top_k, [&](std::int64_t t) {
    for (std::int64_t i = 0; i < n; ++i) {
      A sum = 0;
      for (std::int64_t j = 0; j < top_k; ++j) {
        if (rows[t * top_k + j] < 0) continue;
        sum += weight[t * top_k + j] * widen(y[rows[t * top_k + j] * n + i]);
      }
      out[t * n + i] = static_cast<T>(sum);
    }
  });
  zero_tail(call.out(0));
}

template <class T>
void expert_combine_backward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& position = call.in(ExpertCombineBackwardIn::position);
  const auto* rows = position.as<std::int32_t>();
  const T* dout = call.in(ExpertCombineBackwardIn::dout).as<T>();
  const T* y = call.in(ExpertCombineBackwardIn::y).as<T>();
  const A* weight = call.in(ExpertCombineBackwardIn::weight).as<A>();
  T* dy = call.out(ExpertCombineBackwardOut::dy).as<T>();
  A* dweight = call.out(ExpertCombineBackwardOut::dweight).as<A>();
  const std::int64_t top_k = position.row_size();
  const std::int64_t n = call.in(ExpertCombineBackwardIn::y).row_size();
  for_rows(position.rows(), 2 * n * top_k, [&](std::int64_t t) {
    const T* d = dout + t * n;
    for (std::int64_t j = t * top_k; j < (t + 1) * top_k; ++j) {
      dweight[j] = 0;
      if (rows[j] < 0) continue;
      const std::int64_t first = rows[j] * n;
      for (std::int64_t i = 0; i < n; ++i) dy[first + i] = static_cast<T>(weight[j] * widen(d[i]));
      dweight[j] = vector_lane_sum<A>(n, [&](const auto& at) { return at(d) * at(y + first); });
    }
  });
  zero_tail(call.out(ExpertCombineBackwardOut::dy));
  zero_tail(call.out(ExpertCombineBackwardOut::dweight));
}

}  // namespace

void register_expert_combine_cpu(KernelRegistry& registry) {
  registry.add("expert_combine", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.out(0).dtype(), [&]<class T>() { expert_combine_forward<T>(call); });
                },
                {}});
  registry.add("expert_combine_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(ExpertCombineBackwardIn::y).dtype(),
                               [&]<class T>() { expert_combine_backward<T>(call); });
                },
                {}});
}

}  // namespace hone
