// Reads and writes files in the safetensors format: eight bytes of header length, a JSON header and the bytes of the
// tensors without gaps.
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

// Default size of the staging buffer in host memory through which tensors are read and written: 64 MiB.
inline constexpr std::size_t kPieceBytes = std::size_t{64} << 20;
// Number of elements in a piece of piece_bytes, at least one.
[[nodiscard]] inline std::int64_t elements_in_piece(std::size_t piece_bytes, DType dtype) {
  return piece_bytes < size_of(dtype) ? 1 : static_cast<std::int64_t>(piece_bytes / size_of(dtype));
}

// The element types of the format. Those without a DType can be listed but not read, except F16, which is converted.
enum class StoredType : std::uint8_t {
  kBoolean,
  kU8,
  kI8,
  kF8E5m2,
  kF8E4m3,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64
};

[[nodiscard]] std::size_t size_of(StoredType type);       // bytes
[[nodiscard]] std::string_view name_of(StoredType type);  // name in the file: "F32", "BF16", ...
[[nodiscard]] std::optional<StoredType> stored_type_from_name(std::string_view name);
[[nodiscard]] StoredType stored_type_of(DType dtype);
[[nodiscard]] std::optional<DType> dtype_of(StoredType type);
[[nodiscard]] DType required_dtype_of(StoredType type);  // throws Defect if there is none

// A tensor of a memory-mapped file. `bytes` is valid as long as its SafetensorsFile and may be unaligned.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::string file;  // path of the file, for errors

  [[nodiscard]] std::int64_t element_count() const { return static_cast<std::int64_t>(bytes.size() / size_of(type)); }
};

// Formats a shape: "[2, 3]".
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

// Copies the elements to `out` (element_count() x size_of(wanted) bytes, row-major) with type `wanted`. Converts among
// F16, BF16, F32 and F64 with round-to-nearest-even (F64 to BF16 through F32). Throws Error with file and tensor for
// any other pair of different types.
void read_as(const StoredTensor& tensor, DType wanted, std::span<std::byte> out);
// Copies only out.size() / size_of(wanted) elements, starting at index `first`.
void read_as(const StoredTensor& tensor, DType wanted, std::int64_t first, std::span<std::byte> out);

template <class T>
[[nodiscard]] std::vector<T> read_values(const StoredTensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(tensor.element_count()));
  read_as(tensor, DTypeOf<T>::value, std::as_writable_bytes(std::span(values)));
  return values;
}

// A memory-mapped file with a validated header: every tensor is inside the file, has the size of its type and shape,
// and overlaps no other. The constructor throws Error with the file and the tensor if the file is invalid.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::string& name() const { return name_; }                   // the path, for errors
  [[nodiscard]] std::span<const StoredTensor> tensors() const { return tensors_; }  // in file order
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;              // null if there is none
  [[nodiscard]] const StoredTensor& at(std::string_view name) const;                // throws Error if there is none
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::string name_;
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::unordered_map<std::string_view, std::size_t> index_;  // keys refer to the names in tensors_
};

// The position of a piece (a box of elements) in the whole tensor (checkpoint/tensor_pieces.h).
struct TensorPlace {
  std::vector<std::int64_t> offset;  // first index in each dimension
  std::vector<std::int64_t> whole;   // shape of the whole tensor; empty: the piece is the whole tensor
};

// A tensor to write.
struct TensorSource {
  // Returns the bytes starting at `begin`: at least one and at most `most`; the writer never requests bytes past the
  // end. The writer processes one tensor after the other, each from the first byte to the last, so all sources can
  // share one staging buffer: a returned span must stay valid only until the next call of any source.
  using Piece = std::function<std::span<const std::byte>(std::uint64_t begin, std::size_t most)>;

  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  Piece piece;
  TensorPlace place = {};  // set if this is only a piece of the tensor `name`
  // Its type in the file if that is not the one of `dtype`: F8_E4M3 for bytes of kU8.
  std::optional<StoredType> written_as = {};

  [[nodiscard]] std::uint64_t byte_count() const;
  [[nodiscard]] StoredType stored_type() const { return written_as ? *written_as : stored_type_of(dtype); }
};

// The name under which the file stores the source: for a piece piece_name() (checkpoint/tensor_pieces.h).
[[nodiscard]] std::string stored_name(const TensorSource& source);

// A source over bytes in memory, which must stay valid until the file is written.
[[nodiscard]] TensorSource tensor_source(std::string name, DType dtype, std::vector<std::int64_t> shape,
                                         std::span<const std::byte> bytes);
template <class T>
[[nodiscard]] TensorSource tensor_source(std::string name, std::vector<std::int64_t> shape, std::span<const T> values) {
  return tensor_source(std::move(name), DTypeOf<T>::value, std::move(shape), std::as_bytes(values));
}

// Writes a file, tensor by tensor in pieces of at most piece_bytes (at least one element). The file is written under a
// temporary name and renamed, so it appears complete or not at all. The order of the sources does not matter: as in the
// reference implementation, tensors are ordered by type (widest first), then by name.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> sources,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                       std::size_t piece_bytes = kPieceBytes);

}  // namespace hone
