#include <cstring>

#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

void expert_dispatch_forward(const KernelCall& call) {
  const TensorView& x = call.in(ExpertDispatchIn::x);
  const TensorView& position = call.in(ExpertDispatchIn::position);
  const TensorView& y = call.out(0);
  const auto* rows = position.as<std::int32_t>();
  const std::int64_t top_k = position.row_size();
  const std::size_t row_bytes = static_cast<std::size_t>(x.row_size()) * size_of(x.dtype());
  for_rows(x.rows(), x.row_size() * top_k, [&](std::int64_t t) {
    for (std::int64_t j = 0; j < top_k; ++j) {
      if (rows[t * top_k + j] < 0) continue;
      std::memcpy(y.data + static_cast<std::size_t>(rows[t * top_k + j]) * row_bytes,
                  x.data + static_cast<std::size_t>(t) * row_bytes, row_bytes);
    }
  });
  zero_tail(y);
}

template <class T>
void expert_dispatch_backward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& position = call.in(ExpertDispatchBackwardIn::position);
  const auto* rows = position.as<std::int32_t>();
  const T* dy = call.in(ExpertDispatchBackwardIn::dy).as<T>();
  T* dx = call.out(0).as<T>();
  const std::int64_t top_k = position.row_size();
  const std::int64_t n = call.out(0).row_size();
  for_rows(position.rows(), n * top_k, [&](std::int64_t t) {
    for (std::int64_t i = 0; i < n; ++i) {
      A sum = 0;
      for (std::int64_t j = 0; j < top_k; ++j) {
        if (rows[t * top_k + j] >= 0) sum += widen(dy[rows[t * top_k + j] * n + i]);
      }
      dx[t * n + i] = static_cast<T>(sum);
    }
  });
  zero_tail(call.out(0));
}

}  // namespace

void register_expert_dispatch_cpu(KernelRegistry& registry) {
  for (const char* name : {"expert_dispatch", "expert_dispatch_part"}) {
    registry.add(name, DeviceKind::kCpu, {expert_dispatch_forward, {}});
  }
  registry.add("expert_dispatch_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.out(0).dtype(), [&]<class T>() { expert_dispatch_backward<T>(call); });
                },
                {}});
}

}  // namespace hone
