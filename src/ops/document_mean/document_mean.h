// Mean over the tokens of each document, such as the importance ratio of a whole completion (GSPO: Zheng et al., 2025).
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct DocumentMeanIn {
  enum : std::size_t { x, member, cu_seqlens };
};

// Returns [tokens]: the mean of x over the members of a token's document if the token is a member, otherwise 0.
//   x           [tokens] f32 (f64 in programs of f64)
//   member      i32 [tokens]: a token is a member if its entry is at least 0
//   cu_seqlens  i32 [documents + 1]: the first token of each document; entries past the last document repeat the end
// The gradient is the same operation applied to the output's gradient.
[[nodiscard]] Tensor document_mean(Tensor x, Tensor member, Tensor cu_seqlens);

}  // namespace hone
