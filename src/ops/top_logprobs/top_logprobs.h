// The most probable tokens of each sample, for clients that ask for alternatives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct TopLogprobsIn {
  enum : std::size_t { logits, parameters, counts };
};
struct TopLogprobsOut {
  enum : std::size_t { ids, logps };
};

struct TopLogprobsAttributes {
  std::int64_t most = 0;   // tokens that a sample may ask for
  std::int64_t parts = 1;  // those of SampleAttributes

  template <class Visitor>
  void fields(Visitor& v) {
    v("most", most);
    v("parts", parts);
  }
};

// Outputs, each [samples, most].
struct TopLogprobs {
  Tensor ids;    // i32, -1 after the last token asked for
  Tensor logps;  // in logits' dtype, 0 after the last token asked for
};

// Lists the tokens with the largest logits, the lower id first among equals, and their log-probabilities.
//   logits        [samples, vocab], f32 (f64 in programs of f64)
//   parameters    those of ops/sample, of which only the temperature counts; 0: as 1
//   counts        i32 [samples]: tokens to list, at most `most` and at most the vocabulary; a sample with 0 costs
//   little
//
// A log-probability is the log-softmax of logits / temperature over the whole vocabulary, with the same bits as
// ops/sample gives for the token it draws. A logit that is NaN is not listed.
[[nodiscard]] TopLogprobs top_logprobs(Tensor logits, Tensor parameters, Tensor counts,
                                       const TopLogprobsAttributes& attributes);

}  // namespace hone
