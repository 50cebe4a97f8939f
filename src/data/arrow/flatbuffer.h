// Reads flatbuffers, the format of Arrow's metadata: tables whose fields are located through a vtable. Every access is
// bounds-checked.
// Source: https://flatbuffers.dev/internals/
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace hone {

// An error message without a location, which the reader of the file adds.
struct DamagedArrow {
  std::string_view what;
};

class FlatVector;

// A table. A field is identified by its slot: its position in the schema.
class FlatTable {
 public:
  // Returns the table that the first word of a buffer points to.
  [[nodiscard]] static FlatTable root(std::string_view bytes) { return {bytes, follow(bytes, 0)}; }
  FlatTable(std::string_view bytes, std::size_t at) : bytes_(bytes), at_(at) {
    const std::int64_t vtable = static_cast<std::int64_t>(at) - load<std::int32_t>(bytes, at);
    if (vtable < 0) throw DamagedArrow{"damaged metadata"};
    vtable_ = static_cast<std::size_t>(vtable);
    vtable_size_ = load<std::uint16_t>(bytes, vtable_);
  }

  // Returns a number, or `missing` if the field is absent.
  template <class T>
  [[nodiscard]] T number(int slot, T missing = T{}) const {
    const std::size_t offset = offset_of(slot);
    return offset == 0 ? missing : load<T>(bytes_, at_ + offset);
  }
  [[nodiscard]] std::optional<FlatTable> table(int slot) const {
    const std::size_t offset = offset_of(slot);
    if (offset == 0) return std::nullopt;
    return FlatTable(bytes_, follow(bytes_, at_ + offset));
  }
  [[nodiscard]] FlatTable needed_table(int slot) const {
    const auto found = table(slot);
    if (!found) throw DamagedArrow{"damaged metadata"};
    return *found;
  }
  [[nodiscard]] std::string_view text(int slot) const {
    const std::size_t offset = offset_of(slot);
    if (offset == 0) return {};
    const std::size_t at = follow(bytes_, at_ + offset);
    const auto size = load<std::uint32_t>(bytes_, at);
    if (size > bytes_.size() - at - sizeof size) throw DamagedArrow{"damaged metadata"};
    return bytes_.substr(at + sizeof size, size);
  }
  // Returns a vector of structs or offsets of `element` bytes; empty if the field is absent.
  [[nodiscard]] FlatVector vector(int slot, std::size_t element) const;

  template <class T>
  [[nodiscard]] static T load(std::string_view bytes, std::size_t at) {
    if (at > bytes.size() || sizeof(T) > bytes.size() - at) throw DamagedArrow{"damaged metadata"};
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  }
  [[nodiscard]] static std::size_t follow(std::string_view bytes, std::size_t at) {
    return at + load<std::uint32_t>(bytes, at);
  }

 private:
  // Returns the field's offset within the table; 0: the field is absent.
  [[nodiscard]] std::size_t offset_of(int slot) const {
    // A vtable begins with its size and the table's size; an offset for each field follows. All are 16-bit numbers.
    constexpr std::size_t kEntry = sizeof(std::uint16_t);
    const std::size_t entry = (2 + static_cast<std::size_t>(slot)) * kEntry;
    return entry + kEntry <= vtable_size_ ? load<std::uint16_t>(bytes_, vtable_ + entry) : 0;
  }

  std::string_view bytes_;
  std::size_t at_;
  std::size_t vtable_ = 0;
  std::size_t vtable_size_ = 0;
};

// A vector of fixed-size elements.
class FlatVector {
 public:
  FlatVector() = default;
  FlatVector(std::string_view bytes, std::size_t at, std::size_t element) : bytes_(bytes), element_(element) {
    const auto size = FlatTable::load<std::uint32_t>(bytes, at);
    begin_ = at + sizeof size;
    if (size > (bytes.size() - begin_) / element) throw DamagedArrow{"damaged metadata"};
    size_ = size;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] FlatTable table(std::size_t index) const {
    return {bytes_, FlatTable::follow(bytes_, begin_ + index * element_)};
  }
  template <class T>
  [[nodiscard]] T number(std::size_t index, std::size_t offset = 0) const {
    return FlatTable::load<T>(bytes_, begin_ + index * element_ + offset);
  }

 private:
  std::string_view bytes_;
  std::size_t begin_ = 0;
  std::size_t element_ = 1;
  std::size_t size_ = 0;
};

inline FlatVector FlatTable::vector(int slot, std::size_t element) const {
  const std::size_t offset = offset_of(slot);
  return offset == 0 ? FlatVector() : FlatVector(bytes_, follow(bytes_, at_ + offset), element);
}

}  // namespace hone
