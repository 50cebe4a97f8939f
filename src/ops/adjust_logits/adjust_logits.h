// Adjusts the logits of each sample before a token is drawn: logit bias, allowed and banned tokens, and the penalties
// of tokens that have occurred (repetition: Keskar et al., "CTRL", 2019), in the order of vLLM, then the mask of a
// grammar.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct AdjustLogitsIn {
  enum : std::size_t { logits, parameters, sampled, unread, offsets, ids, occurrences, biases, mask_rows, masks };
};
struct AdjustLogitsOut {
  enum : std::size_t { logits, adjusted };
};

// The columns of `parameters`.
enum class AdjustmentParameter : std::uint8_t {
  kRepetition,  // above 0; 1: off
  kFrequency,   // 0: off
  kPresence,    // 0: off
  kRestricts,   // not 0: logits without an entry become -inf; 0: they stay
};
inline constexpr std::int64_t kAdjustmentParameters = 4;

// The element of `occurrences` for a token that was generated `generated` times.
[[nodiscard]] constexpr std::int32_t occurrences_of(bool in_prompt, std::int64_t generated) {
  return static_cast<std::int32_t>(2 * generated + (in_prompt ? 1 : 0));
}

// A value of an entry after all adjustments. `occurrences` is as in adjust_logits().
template <class A>
struct LogitAdjustment {
  A repetition, frequency, presence;

  constexpr A operator()(A logit, std::int32_t occurrences, A bias) const {
    logit += bias;
    if (occurrences > 0) logit = logit > A(0) ? logit / repetition : logit * repetition;
    const std::int32_t generated = occurrences / 2;
    logit -= frequency * static_cast<A>(generated);
    return generated > 0 ? logit - presence : logit;
  }
};

// Words of 32 bits in a row of masks.
[[nodiscard]] constexpr std::int64_t mask_row_size(std::int64_t vocab) { return (vocab + 31) / 32; }

// Returns true if a mask allows a token. `mask` is a row of masks, or null: every token is allowed.
[[nodiscard]] constexpr bool is_allowed(const std::int32_t* mask, std::int64_t token) {
  return mask == nullptr || (static_cast<std::uint32_t>(mask[token / 32]) >> (token % 32) & 1U) != 0;
}

// Outputs. A sample that is not restricted and has no entry, no unread token and no mask keeps its logits: they are not
// copied, because a vocabulary is long and most samples are of this kind.
struct AdjustedLogits {
  Tensor logits;    // [samples, vocab] of the logits' type; only adjusted rows are written
  Tensor adjusted;  // i32 [samples]: 1 if the sample's row of `logits` has been written, otherwise 0
};

// Adjusts the logits of each sample's entries. An entry is a token id; to its logit its bias is added; if the token has
// occurred, the result is divided by the repetition penalty if it is positive and multiplied by it otherwise; then
// frequency times the number of times that it was generated, and presence if it was generated at all, are subtracted.
//   logits       [samples, vocab], f32 (f64 in programs of f64)
//   parameters   [samples, kAdjustmentParameters] of the same type
//   sampled      i32 [n]: tokens of the step before, on the device
//   unread       i32 [samples]: element of `sampled` that counts as generated once more than the entries say, because
//                the host had not read it; -1: none. It needs no entry.
//   offsets      i32 [samples + 1]: sample s has entries offsets[s] .. offsets[s + 1] - 1
//   ids          i32 [any], each at most once in a sample, in any order
//   occurrences  i32 [any]: occurrences_of() of each entry
//   biases       [any] of the logits' type; -inf bans a token
//   mask_rows    i32 [samples]: row of `masks` that applies to the sample after everything else; -1: none
//   masks        i32 [any, mask_row_size(vocab)]: bit i % 32 of word i / 32 is set if token i may be drawn; the logits
//                of others become -inf
// What belongs to samples that are not in use is not read. Throws Error if the types do not fit.
[[nodiscard]] AdjustedLogits adjust_logits(Tensor logits, Tensor parameters, Tensor sampled, Tensor unread,
                                           Tensor offsets, Tensor ids, Tensor occurrences, Tensor biases,
                                           Tensor mask_rows, Tensor masks);

}  // namespace hone
