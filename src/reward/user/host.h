// A process of this executable that loads a shared object and answers for it.
#pragma once

namespace hone {

inline constexpr const char* kHostVariable = "HONE_REWARD_OBJECT";  // in its environment: the object's path

// kHostVariable; who calls this has the host linked in.
[[nodiscard]] const char* host_variable();

}  // namespace hone
