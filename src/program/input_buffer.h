// The inputs of a program in device memory, and what the host has set since the last upload.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"

namespace hone {

// Collects what the host sets and copies it to the device in few pieces: each copy costs the host several microseconds,
// whatever its size. The device never writes to this memory.
class InputBuffer {
 public:
  InputBuffer() = default;
  // Allocates `bytes` of zeros on the device.
  InputBuffer(Device& device, std::size_t bytes);

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

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
  };

  Device* device_ = nullptr;
  Buffer buffer_;
  std::vector<std::byte> image_;  // what the device has, or will have after upload()
  std::vector<Range> changed_;
};

}  // namespace hone
