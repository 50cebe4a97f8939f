// Log-softmax of a row of logits on the CPU, a chunk of the vocabulary at a time. Trainer and sampler both use it, so
// that the same logits give bitwise the same log-probabilities.
#pragma once

#include <cstdint>
#include <limits>

namespace hone {

// Ids in a chunk: sums run over one chunk at a time and are merged in ascending order of ids.
inline constexpr std::int64_t kVocabChunk = 4096;

// Statistics of softmax(logits / temperature) over a row; A is float or double. A logit may be -inf. If one is NaN or
// +inf, log-probabilities and entropy are NaN.
template <class A>
class LogSoftmax {
 public:
  explicit LogSoftmax(A temperature) : temperature_(temperature) {}

  // Adds the next `count` ids: kVocabChunk of them, or the rest of the vocabulary.
  void add(const A* logits, std::int64_t count);

  // The lowest id among those with the largest logit.
  [[nodiscard]] std::int64_t argmax() const { return argmax_; }
  // logits[argmax] / temperature
  [[nodiscard]] A max() const { return max_; }
  // Logarithm of the sum over v of exp(logits[v] / temperature).
  [[nodiscard]] A lse() const;
  // Entropy of the distribution, in nats.
  [[nodiscard]] A entropy() const;

 private:
  A temperature_;
  A max_logit_ = -std::numeric_limits<A>::infinity();
  A max_ = -std::numeric_limits<A>::infinity();
  double sum_ = 0;       // sum of e = exp(d), d = logits[v] / temperature - max
  double weighted_ = 0;  // sum of d e
  std::int64_t ids_ = 0;
  std::int64_t argmax_ = 0;
};

// Statistics of a whole row of `vocab` logits.
template <class A>
[[nodiscard]] LogSoftmax<A> log_softmax(const A* logits, std::int64_t vocab, A temperature);

// Log-probability of a token with this logit.
template <class A>
[[nodiscard]] A log_probability(A logit, A temperature, A lse) {
  return logit / temperature - lse;
}

}  // namespace hone
