// The inputs of a program, or of several that run one after the other, in device memory, and what the host has set
// since the last upload.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "program/input_layout.h"

namespace hone {

// Collects what the host sets and copies it to the device in few pieces: each copy costs the host several microseconds,
// whatever its size. The device never writes to this memory.
//
// Programs that share a buffer find in an input what any of them was given last: those of a smaller capacity set its
// first rows, and the rows after these are of earlier runs, maybe of a larger program. A run must therefore set all
// that its kernels read.
class InputBuffer {
 public:
  // Allocates zeros on the device.
  InputBuffer(Device& device, InputLayout layout);

  [[nodiscard]] const InputLayout& layout() const { return layout_; }
  // Copies bytes to an offset of the host's image. Bytes that the device has already are not copied again.
  void set(std::size_t offset, std::span<const std::byte> bytes);
  // Returns what was set since the last upload(), as text for add_changes() of a buffer of the same inputs in another
  // process, which has had all of it before.
  [[nodiscard]] std::string changes() const;
  // Sets what changes() of another buffer has returned.
  void add_changes(std::string_view changes);
  // Copies what has changed to the device, in order with its other work.
  void upload();
  [[nodiscard]] std::byte* data() const { return buffer_.data(); }  // on the device

  // Notes that a run has begun, whose later nodes read what is set until it ends: until then only its program may set
  // inputs and run.
  void set_begun(bool begun) { begun_ = begun; }
  [[nodiscard]] bool begun() const { return begun_; }

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
  };

  Device* device_;
  InputLayout layout_;
  Buffer buffer_;
  std::vector<std::byte> image_;  // what the device has, or will have after upload()
  std::vector<Range> changed_;
  bool begun_ = false;
};

}  // namespace hone
