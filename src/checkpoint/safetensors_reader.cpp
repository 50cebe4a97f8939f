#include <bit>
#include <cstring>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_header.h"
#include "core/error.h"
#include "core/parallel.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
static_assert(std::endian::native == std::endian::little, "the format is little-endian");

// Returns the JSON header of a file after checking its length.
std::string_view header_of(std::string_view file, std::string_view where) {
  if (file.size() < kLengthBytes) {
    throw Error(where, text_of("is not a safetensors file: it has ", file.size(), " bytes, the header length alone ",
                               "takes ", kLengthBytes));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    throw Error(where, text_of("is not a safetensors file: a header of ", length, " bytes exceeds the limit of ",
                               kMaxHeaderBytes));
  }
  if (length > file.size() - kLengthBytes) {
    throw Error(where, text_of("the header should have ", length, " bytes, the file has ", file.size() - kLengthBytes,
                               " after its length; the file is cut short"));
  }
  return file.substr(kLengthBytes, length);
}

// IEEE 754 half precision.
struct Float16 {
  std::uint16_t bits = 0;

  explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7FFFu;
    if (magnitude >= 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
    // After the shift the exponent is too small by 112. Multiplying by 2^112 corrects it, also for subnormal numbers.
    const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
};

// Converts elements through f32. The input may be unaligned, so elements are copied with memcpy.
template <class From, class To>
void convert(std::span<const std::byte> in, std::span<std::byte> out) {
  constexpr std::int64_t kGrain = 1 << 16;
  parallel_for(static_cast<std::int64_t>(in.size() / sizeof(From)), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      From from;
      std::memcpy(&from, in.data() + i * sizeof(From), sizeof(From));
      const To to(static_cast<float>(from));
      std::memcpy(out.data() + i * sizeof(To), &to, sizeof(To));
    }
  });
}

// Returns false if the conversion is not supported.
template <class From>
bool convert_to(DType wanted, std::span<const std::byte> in, std::span<std::byte> out) {
  switch (wanted) {
    case DType::kF32:
      convert<From, float>(in, out);
      return true;
    case DType::kBf16:
      convert<From, BFloat16>(in, out);
      return true;
    case DType::kF64:
      convert<From, double>(in, out);
      return true;
    default:
      return false;
  }
}

bool convert_to(DType wanted, StoredType type, std::span<const std::byte> in, std::span<std::byte> out) {
  switch (type) {
    case StoredType::kF16:
      return convert_to<Float16>(wanted, in, out);
    case StoredType::kBf16:
      return convert_to<BFloat16>(wanted, in, out);
    case StoredType::kF32:
      return convert_to<float>(wanted, in, out);
    case StoredType::kF64:
      return convert_to<double>(wanted, in, out);
    default:
      return false;
  }
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t dimension : shape) text += text_of(text.size() > 1 ? ", " : "", dimension);
  return text + "]";
}

void read_as(const StoredTensor& tensor, DType wanted, std::span<std::byte> out) {
  HONE_ASSERT(out.size() == static_cast<std::size_t>(tensor.element_count()) * size_of(wanted), tensor.name, " ",
              shape_text(tensor.shape), " as ", name_of(wanted), " into ", out.size(), " bytes");
  read_as(tensor, wanted, 0, out);
}

void read_as(const StoredTensor& tensor, DType wanted, std::int64_t first, std::span<std::byte> out) {
  const std::size_t count = out.size() / size_of(wanted);
  HONE_ASSERT(first >= 0 && static_cast<std::size_t>(first) + count <= static_cast<std::size_t>(tensor.element_count()),
              tensor.name, " ", shape_text(tensor.shape), ": elements ", first, " to ",
              static_cast<std::size_t>(first) + count);
  const std::span<const std::byte> in =
      tensor.bytes.subspan(static_cast<std::size_t>(first) * size_of(tensor.type), count * size_of(tensor.type));
  if (dtype_of(tensor.type) == wanted) {
    if (!out.empty()) std::memcpy(out.data(), in.data(), out.size());
    return;
  }
  if (!convert_to(wanted, tensor.type, in, out)) {
    throw Error(tensor.file, text_of("tensor ", quoted_name(tensor.name), " is ", name_of(tensor.type),
                                     ", which cannot be read as ", name_of(wanted)));
  }
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : name_(path.string()), file_(path) {
  const std::string_view header_text = header_of(file_.text(), name_);
  const std::span<const std::byte> data = file_.bytes().subspan(kLengthBytes + header_text.size());
  SafetensorsHeader header = parse_safetensors_header(header_text, data.size(), name_);
  metadata_ = std::move(header.metadata);
  tensors_.reserve(header.entries.size());
  for (HeaderEntry& entry : header.entries) {
    tensors_.push_back({std::move(entry.name), entry.type, std::move(entry.shape),
                        data.subspan(entry.begin, entry.end - entry.begin), name_});
  }
  index_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  throw Error(name_, text_of("holds no tensor ", quoted_name(name)));
}

}  // namespace hone
