// Log-probabilities of a row of logits on the CPU as a tensor group computes them: the vocabulary consists of equal
// parts, one for each rank, whose statistics are merged in the order of ranks. The same logits give bitwise the
// log-probabilities of linear_logprobs_part, and with one part those of linear_logprobs.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/linear_logprobs/log_softmax.h"
#include "ops/linear_logprobs/merge_parts.h"

namespace hone {

template <class A>
class PartedSoftmax {
 public:
  // logits: [vocab], which `parts` divides; they must outlive the object.
  PartedSoftmax(const A* logits, std::int64_t vocab, A temperature, std::int64_t parts)
      : logits_(logits), part_(vocab / parts), temperature_(temperature) {
    for (std::int64_t i = 0; i < parts; ++i) {
      lses_.push_back(log_softmax(logits + i * part_, part_, temperature).lse());
    }
    if (parts == 1) return;
    lse_ = merged_lse(parts, [&](std::int64_t i) { return static_cast<double>(lses_[static_cast<std::size_t>(i)]); });
  }

  // Returns the log-probability of a token.
  [[nodiscard]] A logp(std::int64_t token) const {
    const A lse = lses_[static_cast<std::size_t>(token / part_)];
    const A of_part = log_probability(logits_[token], temperature_, lse);
    return lses_.size() == 1
               ? of_part
               : static_cast<A>(merged_logp(static_cast<double>(of_part), static_cast<double>(lse), lse_));
  }

 private:
  const A* logits_;
  std::int64_t part_;  // tokens of a part
  A temperature_;
  std::vector<A> lses_;  // [parts]
  double lse_ = 0;       // of all parts, if there are several
};

}  // namespace hone
