// Ways to isolate an untrusted program.
#pragma once

#include <cstdint>

namespace hone {

enum class SandboxMode : std::uint8_t {
  kNamespaces,  // Linux namespaces created by hone itself: the fastest
  kBubblewrap,  // the same file tree and namespaces created by bwrap, for systems that permit namespaces to bwrap only
  kNone,        // no isolation: a temporary folder and all limits except `processes` and `disk_bytes`
};

}  // namespace hone
