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

// A tensor to be written. `bytes` is called once, when its turn comes, so that one staging buffer can serve them all;
// what it returns must hold until the next call.
struct TensorSource {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::function<std::span<const std::byte>()> bytes;

  [[nodiscard]] std::uint64_t byte_count() const;
};

// A source over values that outlive the writing.
template <class T>
[[nodiscard]] TensorSource tensor_source(std::string name, std::vector<std::int64_t> shape, std::span<const T> values) {
  return {std::move(name), DTypeOf<T>::value, std::move(shape), [values] { return std::as_bytes(values); }};
}

// Writes one file, tensor by tensor, beside its place; it appears whole or not at all. The order of the sources does
// not matter: tensors lie as the reference implementation lays them, by type (widest first), then by name.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> sources,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace hone
