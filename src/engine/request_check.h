// Checks of what requests ask for.
#pragma once

#include <cstdint>

#include "engine/request.h"

namespace hone {

// Checks what changes the logits of a request. Throws Error if a penalty or a bias is outside its range, a token is
// outside the vocabulary, more than kMaxListedTokens are named or no token is left that may be drawn.
void check_adjustments(const SamplingParams& sampling, std::int64_t vocab_size);

}  // namespace hone
