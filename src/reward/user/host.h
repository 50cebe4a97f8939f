// Host process for a reward in a shared object: this executable, started a second time, loads the object and calls it.
#pragma once

namespace hone {

inline constexpr const char* kHostVariable = "HONE_REWARD_OBJECT";  // environment variable with the object's path

// Returns kHostVariable. A call also makes the linker keep the host, which runs from a constructor before main().
[[nodiscard]] const char* host_variable();

}  // namespace hone
