// Activations that wait in another memory for the backward pass: copies out and back beside the device's other work.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct OffloadIn {
  enum : std::size_t { x, home };
};

// `slot` names a copy from its start to its wait; no two that overlap share one.
struct OffloadAttributes {
  std::int64_t slot = 0;
  template <class Visitor>
  void fields(Visitor& v) {
    v("slot", slot);
  }
};

// Starts to copy x to `home`, of the same type; returns home. x must not change before the wait.
[[nodiscard]] Tensor offload(Tensor x, Tensor home, std::int64_t slot);
// From here on home holds x, and x's storage is free for others.
[[nodiscard]] Tensor offload_wait(Tensor x, Tensor home, std::int64_t slot);
// Starts to copy home to an activation, which nobody may read before the wait.
[[nodiscard]] Tensor fetch(Tensor home, std::int64_t slot);
[[nodiscard]] Tensor fetch_wait(Tensor x, std::int64_t slot);

}  // namespace hone
