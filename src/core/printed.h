// Text by a printf format.
#pragma once

#include <array>
#include <cstdio>
#include <string>

namespace hone {

// Returns at most 511 characters.
template <class... Values>
[[nodiscard]] std::string printed(const char* format, Values... values) {
  std::array<char, 512> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, values...);
  return buffer.data();
}

}  // namespace hone
