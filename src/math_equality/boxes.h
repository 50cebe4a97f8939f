// Finds boxed answers (\boxed, \fbox) in LaTeX.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hone {

enum class BoxRule {
  kAll,   // all boxes of the text, joined by commas (for LaTeX in delimiters)
  kLast,  // the last box and the boxes before it that belong to the same answer (for a bare \boxed)
};

// Returns the content of the boxes, or the whole text if it contains none. Takes linear time.
[[nodiscard]] std::string boxed_content(std::string_view text, BoxRule rule);

// Returns the offset of the brace that closes the one at `open`, or npos if there is none before offset `limit`.
[[nodiscard]] std::size_t closing_brace(std::string_view text, std::size_t open, std::size_t limit);

}  // namespace hone
