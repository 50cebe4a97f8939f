#include "program/input_buffer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace hone {

namespace {

// Ranges that are closer than this are uploaded as one: so many bytes take less time than another copy.
constexpr std::size_t kBridgedBytes = std::size_t{16} << 10;

// Inputs are compared with what the device has in pieces of this size: of a block table of a megabyte a step changes a
// few entries.
constexpr std::size_t kComparedBytes = std::size_t{4} << 10;

// Begins each range of changes(): its offset and its bytes, which follow.
using ChangeHeader = std::array<std::size_t, 2>;

}  // namespace

InputBuffer::InputBuffer(Device& device, InputLayout layout)
    : device_(&device),
      layout_(std::move(layout)),
      buffer_(device, layout_.bytes()),
      image_(layout_.bytes(), std::byte{0}) {}

void InputBuffer::set(std::size_t offset, std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kComparedBytes) {
    const std::span<const std::byte> piece = bytes.subspan(at, std::min(kComparedBytes, bytes.size() - at));
    const std::size_t begin = offset + at, end = begin + piece.size();
    if (std::memcmp(image_.data() + begin, piece.data(), piece.size()) == 0) continue;
    std::memcpy(image_.data() + begin, piece.data(), piece.size());
    if (!changed_.empty() && changed_.back().end == begin) {
      changed_.back().end = end;
    } else {
      changed_.push_back({begin, end});
    }
  }
}

std::string InputBuffer::changes() const {
  std::string text;
  for (const Range& range : changed_) {
    const ChangeHeader header{range.begin, range.end - range.begin};
    text.append(reinterpret_cast<const char*>(header.data()), sizeof header);
    text.append(reinterpret_cast<const char*>(image_.data()) + range.begin, header[1]);
  }
  return text;
}

void InputBuffer::add_changes(std::string_view changes) {
  while (!changes.empty()) {
    ChangeHeader header{};
    HONE_ASSERT(changes.size() >= sizeof header, changes.size(), " bytes of a change of inputs");
    std::memcpy(header.data(), changes.data(), sizeof header);
    changes.remove_prefix(sizeof header);
    const auto [offset, size] = header;
    HONE_ASSERT(size <= changes.size() && offset + size <= image_.size(), "a change of ", size, " bytes at ", offset,
                " of ", image_.size());
    set(offset, std::as_bytes(std::span(changes.substr(0, size))));
    changes.remove_prefix(size);
  }
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
