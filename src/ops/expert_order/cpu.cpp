#include <algorithm>
#include <vector>

#include "ops/expert_order/expert_order.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// Counts the rows of each expert from `first` on, of which there are `own` among `experts`, then gives rows out in the
// order of the tokens. Returns their number.
std::int32_t order_rows(const KernelCall& call, std::int64_t experts, std::int64_t first, std::int64_t own) {
  const TensorView& expert = call.in(0);
  const auto* chosen = expert.as<std::int32_t>();
  auto* position = call.out(ExpertOrderOut::position).as<std::int32_t>();
  auto* start = call.out(ExpertOrderOut::start).as<std::int32_t>();
  const std::int64_t choices = expert.rows() * expert.row_size();
  const auto is_own = [&](std::int32_t e) { return e >= first && e < first + own; };
  std::fill(start, start + own + 1, 0);
  for (std::int64_t i = 0; i < choices; ++i) {
    HONE_ASSERT(chosen[i] >= 0 && chosen[i] < experts, "expert ", chosen[i], " is not one of ", experts);
    if (is_own(chosen[i])) ++start[chosen[i] - first + 1];
  }
  for (std::int64_t e = 0; e < own; ++e) start[e + 1] += start[e];
  std::vector<std::int32_t> next(start, start + own);
  for (std::int64_t i = 0; i < choices; ++i) position[i] = is_own(chosen[i]) ? next[chosen[i] - first]++ : -1;
  zero_tail(call.out(ExpertOrderOut::position));
  return start[own];
}

void expert_order_forward(const KernelCall& call) {
  const std::int64_t experts = call.attributes_as<ExpertOrderAttributes>().experts;
  (void)order_rows(call, experts, 0, experts);
}

void expert_order_forward_part(const KernelCall& call) {
  const auto& part = call.attributes_as<ExpertPartAttributes>();
  *call.out(ExpertOrderPartOut::rows).as<std::int64_t>() = order_rows(call, part.experts, part.first, part.own);
}

}  // namespace

void register_expert_order_cpu(KernelRegistry& registry) {
  registry.add("expert_order", DeviceKind::kCpu, {expert_order_forward, {}});
  registry.add("expert_order_part", DeviceKind::kCpu, {expert_order_forward_part, {}});
}

}  // namespace hone
