// The limit on the files and connections that this process may have open.
#pragma once

#include <cstdint>
#include <limits>

namespace hone {

// Raises the limit to `count` if it is lower, as far as the system allows.
void allow_open_files(std::uint64_t count = std::numeric_limits<std::uint64_t>::max());

}  // namespace hone
