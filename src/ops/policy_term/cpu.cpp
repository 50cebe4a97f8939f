#include <algorithm>
#include <limits>

#include "backend/cpu/vector_math.h"
#include "ops/policy_term/policy_term.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// Operands of policy_term, and the formulas for one token. In gives their indices among the inputs of the call.
template <class T>
class Tokens {
 public:
  template <class In>
  Tokens(const KernelCall& call, In)
      : logp_(call.in(In::logp).template as<T>()),
        old_(call.in(In::old_logp) ? call.in(In::old_logp).template as<T>() : nullptr),
        ref_(call.in(In::ref_logp) ? call.in(In::ref_logp).template as<T>() : nullptr),
        advantages_(call.in(In::advantages).template as<T>()),
        attributes_(call.attributes_as<PolicyTermAttributes>()),
        cispo_(attributes_.kind == "cispo"),
        low_(cispo_ ? T(0) : static_cast<T>(1 - attributes_.epsilon)),
        high_(static_cast<T>(cispo_ ? attributes_.epsilon_high : 1 + attributes_.epsilon_high)),
        delta_(attributes_.delta > 0 ? static_cast<T>(attributes_.delta) : std::numeric_limits<T>::infinity()),
        beta_(static_cast<T>(attributes_.beta)) {}

  [[nodiscard]] T kl(std::int64_t i) const {
    if (ref_ == nullptr) return T(0);
    const T difference = ref_[i] - logp_[i];
    return vexp(difference) - difference - T(1);
  }

  [[nodiscard]] T term(std::int64_t i) const {
    const T r = ratio(i);
    const T advantage = advantages_[i];
    const T penalty = beta_ != T(0) ? beta_ * kl(i) : T(0);
    if (cispo_) return penalty - std::min(r, high_) * advantage * logp_[i];
    return penalty - least(std::min(r, delta_) * advantage, std::clamp(r, low_, high_) * advantage);
  }

  [[nodiscard]] T clipped(std::int64_t i) const {
    const T r = ratio(i);
    if (advantages_[i] > T(0) && r > high_) return T(1);
    return !cispo_ && advantages_[i] < T(0) && r < low_ ? T(-1) : T(0);
  }

  // d term / d logp
  [[nodiscard]] T derivative(std::int64_t i) const {
    const T r = ratio(i);
    if (r != r) return r;
    const T advantage = advantages_[i];
    const T penalty = beta_ != T(0) && ref_ != nullptr ? beta_ * (T(1) - vexp(ref_[i] - logp_[i])) : T(0);
    if (cispo_) return penalty - std::min(r, high_) * advantage;
    const T free = std::min(r, delta_) * advantage;
    const T held = std::clamp(r, low_, high_) * advantage;
    const T free_share = free < held ? T(1) : free > held ? T(0) : T(0.5);
    const T through = (r <= delta_ ? free_share : T(0)) + (r >= low_ && r <= high_ ? T(1) - free_share : T(0));
    return through == T(0) ? penalty : penalty - through * r * advantage;
  }

 private:
  [[nodiscard]] T ratio(std::int64_t i) const { return old_ == nullptr ? T(1) : vexp(logp_[i] - old_[i]); }
  // The smaller number; NaN if either is NaN.
  [[nodiscard]] static T least(T a, T b) { return a < b || a != a ? a : b; }

  const T* logp_;
  const T* old_;
  const T* ref_;
  const T* advantages_;
  const PolicyTermAttributes& attributes_;
  bool cispo_;
  T low_, high_, delta_, beta_;
};

template <class T>
void policy_term_forward(const KernelCall& call) {
  const Tokens<T> tokens(call, PolicyTermIn());
  for_rows(call.in(PolicyTermIn::logp).rows(), 64, [&](std::int64_t i) {
    call.out(PolicyTermOut::term).as<T>()[i] = tokens.term(i);
    call.out(PolicyTermOut::kl).as<T>()[i] = tokens.kl(i);
    call.out(PolicyTermOut::clipped).as<T>()[i] = tokens.clipped(i);
  });
  for (const TensorView& output : call.outputs) zero_tail(output);
}

template <class T>
void policy_term_backward(const KernelCall& call) {
  const Tokens<T> tokens(call, PolicyTermBackwardIn());
  const T* dterm = call.in(PolicyTermBackwardIn::dterm).as<T>();
  for_rows(call.in(PolicyTermBackwardIn::logp).rows(), 64,
           [&](std::int64_t i) { call.out(0).as<T>()[i] = dterm[i] == T(0) ? T(0) : dterm[i] * tokens.derivative(i); });
  zero_tail(call.out(0));
}

}  // namespace

void register_policy_term_cpu(KernelRegistry& registry) {
  registry.add("policy_term", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  call.in(PolicyTermIn::logp).dtype() == DType::kF64 ? policy_term_forward<double>(call)
                                                                     : policy_term_forward<float>(call);
                },
                {}});
  registry.add("policy_term_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  call.in(PolicyTermBackwardIn::dterm).dtype() == DType::kF64 ? policy_term_backward<double>(call)
                                                                              : policy_term_backward<float>(call);
                },
                {}});
}

}  // namespace hone
