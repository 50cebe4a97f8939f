#include <algorithm>
#include <vector>

#include "ops/expert_order/expert_order.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// Counts the rows of each expert, then gives rows out in the order of the tokens.
void forward(const KernelCall& call) {
  const std::int64_t experts = call.attributes_as<ExpertOrderAttributes>().experts;
  const TensorView& expert = call.in(0);
  const auto* chosen = expert.as<std::int32_t>();
  auto* position = call.out(ExpertOrderOut::position).as<std::int32_t>();
  auto* start = call.out(ExpertOrderOut::start).as<std::int32_t>();
  const std::int64_t choices = expert.rows() * expert.row_size();
  std::fill(start, start + experts + 1, 0);
  for (std::int64_t i = 0; i < choices; ++i) {
    HONE_ASSERT(chosen[i] >= 0 && chosen[i] < experts, "expert ", chosen[i], " is not one of ", experts);
    ++start[chosen[i] + 1];
  }
  for (std::int64_t e = 0; e < experts; ++e) start[e + 1] += start[e];
  std::vector<std::int32_t> next(start, start + experts);
  for (std::int64_t i = 0; i < choices; ++i) position[i] = next[chosen[i]]++;
  zero_tail(call.out(ExpertOrderOut::position));
}

}  // namespace

void register_expert_order_cpu(KernelRegistry& registry) {
  registry.add("expert_order", DeviceKind::kCpu, {forward, {}});
}

}  // namespace hone
