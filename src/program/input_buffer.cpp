#include "program/input_buffer.h"

#include <algorithm>
#include <cstring>

namespace hone {

namespace {

// Ranges that are closer than this are uploaded as one: so many bytes take less time than another copy.
constexpr std::size_t kBridgedBytes = std::size_t{16} << 10;

}  // namespace

InputBuffer::InputBuffer(Device& device, std::size_t bytes)
    : device_(&device), buffer_(device, bytes), image_(bytes, std::byte{0}) {}

void InputBuffer::set(std::size_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty() || std::memcmp(image_.data() + offset, bytes.data(), bytes.size()) == 0) return;
  std::memcpy(image_.data() + offset, bytes.data(), bytes.size());
  changed_.push_back({offset, offset + bytes.size()});
}

void InputBuffer::upload() {
  std::ranges::sort(changed_, {}, &Range::begin);
  for (std::size_t i = 0; i < changed_.size();) {
    Range piece = changed_[i++];
    while (i < changed_.size() && changed_[i].begin < piece.end + kBridgedBytes) {
      piece.end = std::max(piece.end, changed_[i++].end);
    }
    device_->upload(buffer_.data() + piece.begin, image_.data() + piece.begin, piece.end - piece.begin);
  }
  changed_.clear();
}

}  // namespace hone
