// Means over the tokens of a document, such as the ratio of a whole completion (GSPO: Zheng et al., 2025).
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct DocumentMeanIn {
  enum : std::size_t { x, member, cu_seqlens };
};

// x [tokens] f32 (f64 in programs of f64), member i32 [tokens], cu_seqlens i32 [documents + 1] (entries past the last
// document repeat the end) -> [tokens]: where member >= 0 the mean of x over the document's rows with member >= 0,
// elsewhere 0. The gradient is the same operation applied to the output's gradient.
[[nodiscard]] Tensor document_mean(Tensor x, Tensor member, Tensor cu_seqlens);

}  // namespace hone
