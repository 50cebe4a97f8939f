// Converts numbers between floating types within the memory of a device, by the operation cast.
#pragma once

#include <cstddef>
#include <memory>

#include "program/executable.h"
#include "program/tensor_store.h"

namespace hone {

class DeviceCast {
 public:
  // Takes memory of the device for a piece of both types, some 24 MiB.
  DeviceCast(Device& device, DType from, DType to);

  // Converts `elements` numbers, rounded to nearest even. The addresses need no alignment. In order with the device's
  // other work.
  void run(const std::byte* from, std::byte* to, std::size_t elements);

 private:
  Device& device_;
  TensorStore source_;
  std::shared_ptr<Arena> arena_;
  Executable executable_;
  std::size_t result_;      // offset in the arena
  std::size_t from_bytes_;  // of an element
  std::size_t to_bytes_;
};

}  // namespace hone
