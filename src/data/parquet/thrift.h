// Reads Thrift's compact protocol, the format of Parquet's metadata.
// Source: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

// Type of a field, or of the elements of a list, set or map. A field of type boolean holds its value in its type.
enum class ThriftType : std::uint8_t {
  kStop = 0,  // end of a struct
  kBooleanTrue = 1,
  kBooleanFalse = 2,
  kI8 = 3,
  kI16 = 4,
  kI32 = 5,
  kI64 = 6,
  kDouble = 7,
  kBinary = 8,
  kList = 9,
  kSet = 10,
  kMap = 11,
  kStruct = 12,
};

struct ThriftField {
  int id = 0;
  ThriftType type = ThriftType::kStop;
};

// All functions throw Error that begins with `where` if the bytes end early or a field has another type than expected.
class ThriftReader {
 public:
  ThriftReader(std::string_view bytes, std::string where) : bytes_(bytes), where_(std::move(where)) {}

  // Calls visit(field) for every field of the struct that begins here. visit reads the field's value and returns true,
  // or reads nothing and returns false.
  template <class Visit>
  void read_struct(const Visit& visit) {
    enter();
    ThriftField field;
    while (next_field(field)) {
      if (!visit(field)) skip(field.type);
    }
    --depth_;
  }
  // Reads a field that is a struct.
  template <class Visit>
  void read_struct(ThriftField field, const Visit& visit) {
    expect(field.type == ThriftType::kStruct);
    read_struct(visit);
  }
  // Calls visit(element), a field whose id is 0, for every element of a list.
  template <class Visit>
  void read_list(ThriftField field, const Visit& visit) {
    expect(field.type == ThriftType::kList);
    ThriftField element;
    for (std::uint64_t left = list_header(element.type); left > 0; --left) visit(element);
  }
  [[nodiscard]] std::int64_t integer(ThriftField field);
  [[nodiscard]] std::int32_t integer32(ThriftField field);
  [[nodiscard]] bool boolean(ThriftField field);
  [[nodiscard]] std::string_view binary(ThriftField field);
  void skip(ThriftType type);
  [[nodiscard]] std::size_t consumed() const { return at_; }

 private:
  static constexpr int kDeepest = 32;

  void enter();
  void expect(bool condition) const;
  [[nodiscard]] std::uint8_t byte();
  [[nodiscard]] std::uint64_t varint();
  [[nodiscard]] std::int64_t zigzag();
  [[nodiscard]] bool next_field(ThriftField& field);
  [[nodiscard]] std::uint64_t list_header(ThriftType& element);
  void skip_bytes(std::uint64_t count);
  void skip_element(ThriftType type);

  std::string_view bytes_;
  std::string where_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace hone
