// The safetensors format: eight bytes of header length, a JSON header, the tensors' bytes without a gap.
// Source: https://github.com/huggingface/safetensors (README.md, "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/files.h"

namespace hone {

// Tensors are read and written in pieces of at most so many bytes of the host's memory, where nothing else is said.
inline constexpr std::size_t kPieceBytes = std::size_t{64} << 20;
// Elements of a piece: at least one.
[[nodiscard]] inline std::int64_t elements_in_piece(std::size_t piece_bytes, DType dtype) {
  return piece_bytes < size_of(dtype) ? 1 : static_cast<std::int64_t>(piece_bytes / size_of(dtype));
}

// The element types that a file may hold; those without a DType can be listed, and f16 read converted.
enum class StoredType : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  f64,
  i64,
  u64
};

[[nodiscard]] std::size_t size_of(StoredType type);       // bytes
[[nodiscard]] std::string_view name_of(StoredType type);  // as in the file: "F32", "BF16", ...
[[nodiscard]] std::optional<StoredType> stored_type_from_name(std::string_view name);
[[nodiscard]] StoredType stored_type_of(DType dtype);
[[nodiscard]] std::optional<DType> dtype_of(StoredType type);

// A tensor of a mapped file; `bytes` lives as long as its SafetensorsFile and may be unaligned.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::string file;  // for errors

  [[nodiscard]] std::int64_t element_count() const { return static_cast<std::int64_t>(bytes.size() / size_of(type)); }
};

// "[2, 3]".
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

// Copies the elements to `out` (element_count() x size_of(wanted) bytes, in row-major order) as `wanted`: unchanged
// where the types agree, else among F16, BF16, F32 and F64 by rounding to nearest even (F64 to BF16 by way of F32).
// Throws Error naming file and tensor for any other pair.
void read_as(const StoredTensor& tensor, DType wanted, std::span<std::byte> out);
// The same of the out.size() / size_of(wanted) elements from `first` on.
void read_as(const StoredTensor& tensor, DType wanted, std::int64_t first, std::span<std::byte> out);

template <class T>
[[nodiscard]] std::vector<T> read_values(const StoredTensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(tensor.element_count()));
  read_as(tensor, DTypeOf<T>::value, std::as_writable_bytes(std::span(values)));
  return values;
}

// A memory-mapped file whose header has been checked completely: every tensor lies inside the file, is as long as its
// type and shape say, and none overlap. The constructor throws Error naming the file and the tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::string& name() const { return name_; }                   // the path, for errors
  [[nodiscard]] std::span<const StoredTensor> tensors() const { return tensors_; }  // in the order of their bytes
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;              // null where there is none
  [[nodiscard]] const StoredTensor& at(std::string_view name) const;                // throws Error
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::string name_;
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::unordered_map<std::string_view, std::size_t> index_;  // by the names in tensors_
};

// Where a box of a tensor lies in the whole (checkpoint/tensor_pieces.h).
struct TensorPlace {
  std::vector<std::int64_t> offset;  // by dimension
  std::vector<std::int64_t> whole;   // shape; empty: the box is the whole
};

// A tensor to be written.
struct TensorSource {
  // Hands out bytes from `begin` on: at least one, at most `most`, which do not reach beyond the last. The writer takes
  // one tensor after the other, each from its first byte to its last, so that one staging buffer can serve them all:
  // what is returned must hold until the next call.
  using Piece = std::function<std::span<const std::byte>(std::uint64_t begin, std::size_t most)>;

  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  Piece piece;
  TensorPlace place = {};  // of less than the whole tensor `name`

  [[nodiscard]] std::uint64_t byte_count() const;
};

// A source over bytes that outlive the writing.
[[nodiscard]] TensorSource tensor_source(std::string name, DType dtype, std::vector<std::int64_t> shape,
                                         std::span<const std::byte> bytes);
template <class T>
[[nodiscard]] TensorSource tensor_source(std::string name, std::vector<std::int64_t> shape, std::span<const T> values) {
  return tensor_source(std::move(name), DTypeOf<T>::value, std::move(shape), std::as_bytes(values));
}

// Writes one file, tensor by tensor in pieces of at most piece_bytes (at least an element), beside its place; it
// appears whole or not at all. The order of the sources does not matter: tensors lie as the reference implementation
// lays them, by type (widest first), then by name.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> sources,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                       std::size_t piece_bytes = kPieceBytes);

}  // namespace hone
