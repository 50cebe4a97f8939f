// Makes what has occurred less likely (Keskar et al., "CTRL", 2019; as vLLM and transformers do it).
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct RepetitionPenaltyIn {
  enum : std::size_t { logits, penalties, offsets, ids };
};

// logits [samples, vocab], f32 (f64 in programs of f64); penalties [samples] of the same type, above 0; offsets i32
// [samples + 1]; ids i32 [any]: those of sample s are ids[offsets[s]] .. ids[offsets[s + 1] - 1], each once, in any
// order. Neither the ids behind those of the samples in use nor their offsets are read.
//
// A sample's logits at its ids are divided by its penalty where they are positive, and multiplied by it where they are
// not; all others are copied.
[[nodiscard]] Tensor repetition_penalty(Tensor logits, Tensor penalties, Tensor offsets, Tensor ids);

}  // namespace hone
