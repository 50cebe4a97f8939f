// Repetition penalty: lowers the logits of tokens that have occurred (Keskar et al., "CTRL", 2019), as vLLM and
// transformers do.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct RepetitionPenaltyIn {
  enum : std::size_t { logits, penalties, offsets, ids };
};

// Returns the logits with those at a sample's ids divided by its penalty if they are positive and multiplied by it
// otherwise; all others are copied.
//   logits     [samples, vocab], f32 (f64 in programs of f64)
//   penalties  [samples] of the same type, above 0
//   offsets    i32 [samples + 1]
//   ids        i32 [any]: sample s has ids[offsets[s]] .. ids[offsets[s + 1] - 1], each once, in any order
// Offsets and ids of samples that are not in use are not read. Throws Error if the types do not fit.
[[nodiscard]] Tensor repetition_penalty(Tensor logits, Tensor penalties, Tensor offsets, Tensor ids);

}  // namespace hone
