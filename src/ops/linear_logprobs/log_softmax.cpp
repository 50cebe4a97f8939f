#include "ops/linear_logprobs/log_softmax.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/vector_math.h"

namespace hone {
template <class A>
void LogSoftmax<A>::add(const A* logits, std::int64_t count) {
  const A max_logit = max16(logits, count);
  if (max_logit > max_logit_) {
    argmax_ = ids_ + (std::find(logits, logits + count, max_logit) - logits);
    max_logit_ = max_logit;
  }
  ids_ += count;
  const A max = max_logit / temperature_;
  if (max == -std::numeric_limits<A>::infinity()) {
    for (std::int64_t i = 0; i < count; ++i) sum_ += std::isnan(logits[i]) ? static_cast<double>(logits[i]) : 0.0;
    return;
  }
  std::array<A, kVocabChunk> d;
  std::array<A, kVocabChunk> e;
  for (std::int64_t i = 0; i < count; ++i) {
    const A difference = logits[i] / temperature_ - max;
    e[i] = vexp(difference);
    d[i] = e[i] > A(0) ? difference : A(0);
  }
  const A sum = sum16(e.data(), count);
  const A weighted = dot16(d.data(), e.data(), count);

  // Rescales the side with the smaller maximum to the larger one, which adds `shift` to each d and multiplies each e by
  // exp(shift), and adds both.
  const bool newer = max > max_;
  const double shift = newer ? static_cast<double>(max_) - max : static_cast<double>(max) - max_;
  const double factor = std::exp(shift);
  const auto shifted = [&](double from_weighted, double from_sum) {
    return from_sum == 0 ? 0.0 : factor * (from_weighted + shift * from_sum);
  };
  if (newer) {
    weighted_ = shifted(weighted_, sum_) + weighted;
    sum_ = sum_ * factor + sum;
    max_ = max;
  } else {
    weighted_ += shifted(weighted, sum);
    sum_ += factor * sum;
  }
}

template <class A>
A LogSoftmax<A>::lse() const {
  return static_cast<A>(static_cast<double>(max_) + std::log(sum_));
}

template <class A>
A LogSoftmax<A>::entropy() const {
  return static_cast<A>(std::log(sum_) - weighted_ / sum_);
}

template <class A>
LogSoftmax<A> log_softmax(const A* logits, std::int64_t vocab, A temperature) {
  LogSoftmax<A> result(temperature);
  for (std::int64_t first = 0; first < vocab; first += kVocabChunk) {
    result.add(logits + first, std::min(kVocabChunk, vocab - first));
  }
  return result;
}

template class LogSoftmax<float>;
template class LogSoftmax<double>;
template LogSoftmax<float> log_softmax(const float*, std::int64_t, float);
template LogSoftmax<double> log_softmax(const double*, std::int64_t, double);

}  // namespace hone
