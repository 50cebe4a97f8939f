#include <algorithm>

#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/token_feedback/token_feedback.h"

namespace hone {
namespace {

void token_feedback_take(const KernelCall& call) {
  const TensorView& tokens = call.in(TokenFeedbackIn::tokens);
  const TensorView& sampled = call.in(TokenFeedbackIn::sampled);
  const auto* from = tokens.as<std::int32_t>();
  auto* to = call.out(0).as<std::int32_t>();
  for (std::int64_t row = 0; row < tokens.rows(); ++row) {
    const std::int64_t sample = -1 - std::int64_t{from[row]};
    HONE_ASSERT(sample < sampled.capacity(), "token ", from[row], " names no sample of ", sampled.capacity());
    to[row] = sample < 0 ? from[row] : sampled.as<std::int32_t>()[sample];
  }
  zero_tail(call.out(0));
}

void store(const KernelCall& call) {
  const TensorView& token = call.in(TokenFeedbackStoreIn::token);
  std::copy_n(token.as<std::int32_t>(), token.rows(), call.out(0).as<std::int32_t>());
}

}  // namespace

void register_token_feedback_cpu(KernelRegistry& registry) {
  registry.add("token_feedback", DeviceKind::kCpu, {token_feedback_take, {}});
  registry.add("token_feedback_store", DeviceKind::kCpu, {store, {}});
}

}  // namespace hone
