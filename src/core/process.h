// What the system says of this process.
#pragma once

#include <cstdint>

namespace hone {

[[nodiscard]] std::uint64_t resident_bytes();       // now; 0 where it cannot be read
[[nodiscard]] std::uint64_t peak_resident_bytes();  // since the start

}  // namespace hone
