// The loop over a source's rows that encode_examples and encode_prompts share.
#pragma once

#include <cstddef>
#include <functional>

#include "data/encode.h"

namespace hone {

inline constexpr std::size_t kRowsAtOnce = 1024;

// Reads rows in blocks of kRowsAtOnce, calls encode(slot, row) for those of a block in parallel, and then take(slot)
// for those that did not throw Error, in order; the others are counted in report.bad with its text. Counts report.rows
// and throws Error where take was never called.
void encode_rows(const Source& source, EncodingReport& report,
                 const std::function<void(std::size_t slot, const Json& row)>& encode,
                 const std::function<void(std::size_t slot)>& take);

}  // namespace hone
