// How programs that nobody trusts are kept apart.
#pragma once

#include <cstdint>

namespace hone {

enum class SandboxMode : std::uint8_t {
  namespaces,  // the kernel's, made by hone itself: the quickest
  bubblewrap,  // the same world made by bwrap, which systems may allow where they do not allow hone
  none,        // no isolation: the limits, but for the one on processes, and a folder of its own
};

}  // namespace hone
