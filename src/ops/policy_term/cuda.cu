#include <limits>

#include "ops/cuda_kernel.cuh"
#include "ops/policy_term/policy_term.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// Operands and attributes of policy_term, and the formulas for one token. NaN propagates as on the CPU.
template <class T>
struct Tokens {
  const T* logp;
  const T* old_logp;  // or null
  const T* ref_logp;  // or null
  const T* advantages;
  RowCount rows;
  bool cispo;
  T low, high, delta, beta;

  [[nodiscard]] __device__ T kl(std::int64_t i) const {
    if (ref_logp == nullptr) return T(0);
    const T difference = ref_logp[i] - logp[i];
    return exp(difference) - difference - T(1);
  }

  [[nodiscard]] __device__ T term(std::int64_t i) const {
    const T r = ratio(i);
    const T advantage = advantages[i];
    const T penalty = beta != T(0) ? beta * kl(i) : T(0);
    if (cispo) return penalty - at_most(r, high) * advantage * logp[i];
    const T free = at_most(r, delta) * advantage;
    const T held = clamped(r) * advantage;
    return penalty - (free < held || free != free ? free : held);
  }

  [[nodiscard]] __device__ T clipped(std::int64_t i) const {
    const T r = ratio(i);
    if (advantages[i] > T(0) && r > high) return T(1);
    return !cispo && advantages[i] < T(0) && r < low ? T(-1) : T(0);
  }

  // d term / d logp
  [[nodiscard]] __device__ T derivative(std::int64_t i) const {
    const T r = ratio(i);
    if (r != r) return r;
    const T advantage = advantages[i];
    const T penalty = beta != T(0) && ref_logp != nullptr ? beta * (T(1) - exp(ref_logp[i] - logp[i])) : T(0);
    if (cispo) return penalty - at_most(r, high) * advantage;
    const T free = at_most(r, delta) * advantage;
    const T held = clamped(r) * advantage;
    const T free_share = free < held ? T(1) : free > held ? T(0) : T(0.5);
    const T through = (r <= delta ? free_share : T(0)) + (r >= low && r <= high ? T(1) - free_share : T(0));
    return through == T(0) ? penalty : penalty - through * r * advantage;
  }

 private:
  [[nodiscard]] __device__ T ratio(std::int64_t i) const {
    return old_logp == nullptr ? T(1) : exp(logp[i] - old_logp[i]);
  }
  [[nodiscard]] __device__ static T at_most(T x, T bound) { return bound < x ? bound : x; }
  [[nodiscard]] __device__ T clamped(T x) const { return x < low ? low : high < x ? high : x; }
};

// Collects the operands of a call; In gives their indices among its inputs.
template <class T, class In>
Tokens<T> tokens_of(const KernelCall& call) {
  const auto& a = call.attributes_as<PolicyTermAttributes>();
  const bool cispo = a.kind == "cispo";
  return {.logp = cuda_data<T>(call.in(In::logp)),
          .old_logp = cuda_data<T>(call.in(In::old_logp)),
          .ref_logp = cuda_data<T>(call.in(In::ref_logp)),
          .advantages = cuda_data<T>(call.in(In::advantages)),
          .rows = row_count(call.in(In::logp)),
          .cispo = cispo,
          .low = cispo ? T(0) : static_cast<T>(1 - a.epsilon),
          .high = static_cast<T>(cispo ? a.epsilon_high : 1 + a.epsilon_high),
          .delta = a.delta > 0 ? static_cast<T>(a.delta) : std::numeric_limits<T>::infinity(),
          .beta = static_cast<T>(a.beta)};
}

template <class T>
__global__ void __launch_bounds__(kThreads) term_kernel(Tokens<T> tokens, T* term, T* kl, T* clipped) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= tokens.rows.capacity) return;
  const bool used = i < tokens.rows.get();
  term[i] = used ? tokens.term(i) : T(0);
  kl[i] = used ? tokens.kl(i) : T(0);
  clipped[i] = used ? tokens.clipped(i) : T(0);
}

template <class T>
__global__ void __launch_bounds__(kThreads) derivative_kernel(Tokens<T> tokens, const T* dterm, T* dlogp) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= tokens.rows.capacity) return;
  dlogp[i] = i < tokens.rows.get() && dterm[i] != T(0) ? dterm[i] * tokens.derivative(i) : T(0);
}

template <class T>
void forward(const KernelCall& call) {
  const Tokens<T> tokens = tokens_of<T, PolicyTermIn>(call);
  const auto blocks = static_cast<unsigned>(ceil_div(tokens.rows.capacity, kThreads));
  if (blocks == 0) return;
  term_kernel<<<blocks, kThreads, 0, stream_of(call)>>>(tokens, cuda_data<T>(call.out(PolicyTermOut::term)),
                                                        cuda_data<T>(call.out(PolicyTermOut::kl)),
                                                        cuda_data<T>(call.out(PolicyTermOut::clipped)));
  check_launch("policy_term");
}

template <class T>
void backward(const KernelCall& call) {
  const Tokens<T> tokens = tokens_of<T, PolicyTermBackwardIn>(call);
  const auto blocks = static_cast<unsigned>(ceil_div(tokens.rows.capacity, kThreads));
  if (blocks == 0) return;
  derivative_kernel<<<blocks, kThreads, 0, stream_of(call)>>>(
      tokens, cuda_data<T>(call.in(PolicyTermBackwardIn::dterm)), cuda_data<T>(call.out(0)));
  check_launch("policy_term_backward");
}

}  // namespace

void register_policy_term_cuda(KernelRegistry& registry) {
  registry.add("policy_term", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  call.in(PolicyTermIn::logp).dtype() == DType::kF64 ? forward<double>(call) : forward<float>(call);
                },
                {}});
  registry.add("policy_term_backward", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  call.in(PolicyTermBackwardIn::dterm).dtype() == DType::kF64 ? backward<double>(call)
                                                                              : backward<float>(call);
                },
                {}});
}

}  // namespace hone
