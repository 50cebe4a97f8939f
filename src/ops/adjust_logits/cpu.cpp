#include <algorithm>
#include <limits>

#include "ops/adjust_logits/adjust_logits.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class A>
void adjust(const KernelCall& call) {
  using In = AdjustLogitsIn;
  const TensorView& logits = call.in(In::logits);
  const TensorView& sampled = call.in(In::sampled);
  const std::int64_t vocab = logits.row_size();
  const A* from = logits.as<A>();
  const A* parameters = call.in(In::parameters).as<A>();
  const auto* unread = call.in(In::unread).as<std::int32_t>();
  const auto* offsets = call.in(In::offsets).as<std::int32_t>();
  const auto* ids = call.in(In::ids).as<std::int32_t>();
  const auto* occurrences = call.in(In::occurrences).as<std::int32_t>();
  const A* biases = call.in(In::biases).as<A>();
  const auto* mask_rows = call.in(In::mask_rows).as<std::int32_t>();
  const TensorView& masks = call.in(In::masks);
  A* to = call.out(AdjustLogitsOut::logits).as<A>();
  auto* is_adjusted = call.out(AdjustLogitsOut::adjusted).as<std::int32_t>();
  for_rows(logits.rows(), vocab, [&](std::int64_t row) {
    const A* raw = from + row * vocab;
    A* result = to + row * vocab;
    const A* p = parameters + row * kAdjustmentParameters;
    const auto parameter = [&](AdjustmentParameter which) { return p[static_cast<std::size_t>(which)]; };
    const bool restricts = parameter(AdjustmentParameter::kRestricts) != A(0);
    is_adjusted[row] = restricts || offsets[row] < offsets[row + 1] || unread[row] >= 0 || mask_rows[row] >= 0;
    if (is_adjusted[row] == 0) return;
    if (restricts) {
      std::fill_n(result, vocab, -std::numeric_limits<A>::infinity());
    } else {
      std::copy_n(raw, vocab, result);
    }
    const LogitAdjustment<A> adjusted{parameter(AdjustmentParameter::kRepetition),
                                      parameter(AdjustmentParameter::kFrequency),
                                      parameter(AdjustmentParameter::kPresence)};
    HONE_ASSERT(unread[row] < sampled.capacity(), "sample ", unread[row], " of ", sampled.capacity());
    const std::int32_t newest = unread[row] < 0 ? -1 : sampled.as<std::int32_t>()[unread[row]];
    bool has_entry = newest < 0;
    for (std::int32_t i = offsets[row]; i < offsets[row + 1]; ++i) {
      const bool again = ids[i] == newest;
      has_entry = has_entry || again;
      result[ids[i]] = adjusted(raw[ids[i]], occurrences[i] + (again ? occurrences_of(false, 1) : 0), biases[i]);
    }
    if (!has_entry) result[newest] = adjusted(raw[newest], occurrences_of(false, 1), A(0));
    if (mask_rows[row] < 0) return;
    HONE_ASSERT(mask_rows[row] < masks.capacity(), "mask ", mask_rows[row], " of ", masks.capacity());
    const std::int32_t* mask = masks.as<std::int32_t>() + mask_rows[row] * masks.row_size();
    for (std::int64_t token = 0; token < vocab; ++token) {
      if (!is_allowed(mask, token)) result[token] = -std::numeric_limits<A>::infinity();
    }
  });
  zero_tail(call.out(AdjustLogitsOut::logits));
  zero_tail(call.out(AdjustLogitsOut::adjusted));
}

}  // namespace

void register_adjust_logits_cpu(KernelRegistry& registry) {
  registry.add("adjust_logits", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  call.in(AdjustLogitsIn::logits).dtype() == DType::kF64 ? adjust<double>(call) : adjust<float>(call);
                },
                {}});
}

}  // namespace hone
