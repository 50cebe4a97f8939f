// Activation offloading: copies activations to another memory until the backward pass, and back, concurrently with the
// device's other work.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct OffloadIn {
  enum : std::size_t { x, home };
};

// `slot` identifies a copy from its start to its wait; copies that overlap have different slots.
struct OffloadAttributes {
  std::int64_t slot = 0;
  template <class Visitor>
  void fields(Visitor& v) {
    v("slot", slot);
  }
};

// Starts copying x to `home`, of the same type, and returns home. x must not change before offload_wait.
[[nodiscard]] Tensor offload(Tensor x, Tensor home, std::int64_t slot);
// Waits for the copy. Afterwards home holds x, and x's storage can be reused.
[[nodiscard]] Tensor offload_wait(Tensor x, Tensor home, std::int64_t slot);
// Starts copying home back to a new activation and returns it; it must not be read before fetch_wait.
[[nodiscard]] Tensor fetch(Tensor home, std::int64_t slot);
// Waits for the copy and returns the activation.
[[nodiscard]] Tensor fetch_wait(Tensor x, std::int64_t slot);

}  // namespace hone
