// The loop over a source's rows that encode_examples and encode_prompts share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "data/encode.h"

namespace hone {

inline constexpr std::size_t kRowsAtOnce = 1024;

// Reads rows in blocks of kRowsAtOnce, calls encode(slot, row) for those of a block in parallel, and then take(slot)
// for those that did not throw Error, as the files have them; the others are counted in report.bad with its text.
// Counts report.rows and throws Error where take was never called. Returns the order of what was taken, by the number
// of the call, which follows the source's; empty: as it was taken.
[[nodiscard]] std::vector<std::uint32_t> encode_rows(
    const Source& source, EncodingReport& report, const std::function<void(std::size_t slot, const Json& row)>& encode,
    const std::function<void(std::size_t slot)>& take);

}  // namespace hone
