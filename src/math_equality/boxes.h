// Boxed answers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hone {

enum class BoxRule {
  all,   // every box of the text, joined by commas (a text in delimiters)
  last,  // the last box, with those before it that belong to it (a bare \boxed)
};

// The content of the boxes (\boxed, \fbox); the text itself where there is none. Linear.
[[nodiscard]] std::string boxed_content(std::string_view text, BoxRule rule);

// The index of the brace that closes the one at `open`, before `limit`; npos where there is none.
[[nodiscard]] std::size_t closing_brace(std::string_view text, std::size_t open, std::size_t limit);

}  // namespace hone
