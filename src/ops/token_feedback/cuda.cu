#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"
#include "ops/token_feedback/token_feedback.h"

namespace hone {
namespace {

constexpr unsigned kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    take_kernel(const std::int32_t* tokens, RowCount rows, const std::int32_t* sampled, std::int64_t samples,
                std::int32_t* to) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  begin_dependent_kernel();
  if (row >= rows.capacity) return;
  std::int32_t token = row < rows.get() ? tokens[row] : 0;
  const std::int64_t sample = -1 - std::int64_t{token};
  if (sample >= 0 && sample < samples) token = sampled[sample];
  to[row] = token;
}

__global__ void __launch_bounds__(kThreads) store_kernel(const std::int32_t* token, RowCount rows, std::int32_t* to) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  begin_dependent_kernel();
  if (row < rows.get()) to[row] = token[row];
}

unsigned blocks_of(const TensorView& view) { return static_cast<unsigned>(ceil_div(view.capacity(), kThreads)); }

void take(const KernelCall& call) {
  const TensorView& tokens = call.in(TokenFeedbackIn::tokens);
  const TensorView& sampled = call.in(TokenFeedbackIn::sampled);
  if (tokens.capacity() == 0) return;
  launch_dependent({blocks_of(tokens), kThreads}, stream_of(call), take_kernel, cuda_data<std::int32_t>(tokens),
                   row_count(tokens), cuda_data<std::int32_t>(sampled), sampled.capacity(),
                   cuda_data<std::int32_t>(call.out(0)));
  check_launch("token_feedback");
}

void store(const KernelCall& call) {
  const TensorView& token = call.in(TokenFeedbackStoreIn::token);
  if (token.capacity() == 0) return;
  launch_dependent({blocks_of(token), kThreads}, stream_of(call), store_kernel, cuda_data<std::int32_t>(token),
                   row_count(token), cuda_data<std::int32_t>(call.out(0)));
  check_launch("token_feedback_store");
}

}  // namespace

void register_token_feedback_cuda(KernelRegistry& registry) {
  registry.add("token_feedback", DeviceKind::kCuda, {take, {}});
  registry.add("token_feedback_store", DeviceKind::kCuda, {store, {}});
}

}  // namespace hone
