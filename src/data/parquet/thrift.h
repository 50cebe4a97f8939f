// Reads Thrift's compact protocol, the format of Parquet's metadata.
// Source: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

enum class ThriftType : std::uint8_t {
  stop = 0,
  yes = 1,
  no = 2,
  i8 = 3,
  i16 = 4,
  i32 = 5,
  i64 = 6,
  real = 7,
  binary = 8,
  list = 9,
  set = 10,
  map = 11,
  structure = 12,
};

struct ThriftField {
  int id = 0;
  ThriftType type = ThriftType::stop;
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
    expect(field.type == ThriftType::structure);
    read_struct(visit);
  }
  // Calls visit(element), a field whose id is 0, for every element of a list.
  template <class Visit>
  void read_list(ThriftField field, const Visit& visit) {
    expect(field.type == ThriftType::list);
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
