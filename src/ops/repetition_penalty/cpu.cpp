#include <algorithm>

#include "ops/registry.h"
#include "ops/repetition_penalty/repetition_penalty.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class A>
void penalize(const KernelCall& call) {
  const TensorView& logits = call.in(RepetitionPenaltyIn::logits);
  const std::int64_t vocab = logits.row_size();
  const A* from = logits.as<A>();
  const A* penalties = call.in(RepetitionPenaltyIn::penalties).as<A>();
  const auto* offsets = call.in(RepetitionPenaltyIn::offsets).as<std::int32_t>();
  const auto* ids = call.in(RepetitionPenaltyIn::ids).as<std::int32_t>();
  A* to = call.out(0).as<A>();
  for_rows(logits.rows(), vocab, [&](std::int64_t row) {
    A* result = to + row * vocab;
    std::copy_n(from + row * vocab, vocab, result);
    for (std::int32_t i = offsets[row]; i < offsets[row + 1]; ++i) {
      A& logit = result[ids[i]];
      logit = logit > A(0) ? logit / penalties[row] : logit * penalties[row];
    }
  });
  zero_tail(call.out(0));
}

}  // namespace

void register_repetition_penalty_cpu(KernelRegistry& registry) {
  registry.add("repetition_penalty", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  call.in(RepetitionPenaltyIn::logits).dtype() == DType::kF64 ? penalize<double>(call)
                                                                              : penalize<float>(call);
                },
                {}});
}

}  // namespace hone
