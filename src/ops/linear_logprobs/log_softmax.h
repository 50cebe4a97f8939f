// Log-softmax of a row of logits, a chunk of the vocabulary at a time. The trainer and the sampler both use this, so
// that the same logits give bitwise the same log-probabilities.
#pragma once

#include <cstdint>
#include <limits>

namespace hone {

// Sums run over chunks of this many ids and are merged in the order of ids.
inline constexpr std::int64_t kVocabChunk = 4096;

// Over logits[v] / temperature, v in the vocabulary; A is float or double. A logit may be -inf; where one is NaN or
// +inf, so are log-probabilities and entropy NaN.
template <class A>
class LogSoftmax {
 public:
  explicit LogSoftmax(A temperature) : temperature_(temperature) {}

  // Adds the next ids: kVocabChunk of them, or those that are left.
  void add(const A* logits, std::int64_t count);

  // The lowest id among those with the largest logit.
  [[nodiscard]] std::int64_t argmax() const { return argmax_; }
  // logits[argmax] / temperature
  [[nodiscard]] A max() const { return max_; }
  // log of the sum over v of exp(logits[v] / temperature)
  [[nodiscard]] A lse() const;
  // In nats.
  [[nodiscard]] A entropy() const;

 private:
  A temperature_;
  A max_logit_ = -std::numeric_limits<A>::infinity();
  A max_ = -std::numeric_limits<A>::infinity();
  double sum_ = 0;       // of e = exp(d), d = logits[v] / temperature - max
  double weighted_ = 0;  // of d e
  std::int64_t ids_ = 0;
  std::int64_t argmax_ = 0;
};

// All of a row.
template <class A>
[[nodiscard]] LogSoftmax<A> log_softmax(const A* logits, std::int64_t vocab, A temperature);

template <class A>
[[nodiscard]] A log_probability(A logit, A temperature, A lse) {
  return logit / temperature - lse;
}

}  // namespace hone
