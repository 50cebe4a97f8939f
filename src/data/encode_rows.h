// The loop over a source's rows that encode_examples and encode_prompts share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "data/encode.h"

namespace hone {

// Rows that are encoded in parallel as one block.
inline constexpr std::size_t kRowsAtOnce = 1024;

// Reads rows in blocks of kRowsAtOnce. Calls encode(slot, row) for the rows of a block in parallel, then take(slot)
// serially, in file order, for each row whose encode did not throw Error; the other rows are counted in report.bad with
// the error's text. Counts report.rows. Throws Error if take was never called. Returns the order of the taken rows,
// numbered by their call of take, according to the source's order; empty: the order in which they were taken.
[[nodiscard]] std::vector<std::uint32_t> encode_rows(
    const Source& source, EncodingReport& report, const std::function<void(std::size_t slot, const Json& row)>& encode,
    const std::function<void(std::size_t slot)>& take);

}  // namespace hone
