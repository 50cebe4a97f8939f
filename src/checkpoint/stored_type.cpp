#include <array>

#include "checkpoint/safetensors.h"
#include "core/error.h"

namespace hone {
namespace {

struct Entry {
  StoredType type;
  std::string_view name;
  std::size_t size;
  std::optional<DType> dtype;
};
constexpr std::array<Entry, 15> kEntries{{{StoredType::kBoolean, "BOOL", 1, {}},
                                          {StoredType::kU8, "U8", 1, DType::kU8},
                                          {StoredType::kI8, "I8", 1, {}},
                                          {StoredType::kF8E5m2, "F8_E5M2", 1, {}},
                                          {StoredType::kF8E4m3, "F8_E4M3", 1, {}},
                                          {StoredType::kI16, "I16", 2, {}},
                                          {StoredType::kU16, "U16", 2, {}},
                                          {StoredType::kF16, "F16", 2, {}},
                                          {StoredType::kBf16, "BF16", 2, DType::kBf16},
                                          {StoredType::kI32, "I32", 4, DType::kI32},
                                          {StoredType::kU32, "U32", 4, {}},
                                          {StoredType::kF32, "F32", 4, DType::kF32},
                                          {StoredType::kF64, "F64", 8, DType::kF64},
                                          {StoredType::kI64, "I64", 8, DType::kI64},
                                          {StoredType::kU64, "U64", 8, {}}}};

const Entry& entry_of(StoredType type) { return kEntries[static_cast<std::size_t>(type)]; }

}  // namespace

std::size_t size_of(StoredType type) { return entry_of(type).size; }
std::string_view name_of(StoredType type) { return entry_of(type).name; }
std::optional<DType> dtype_of(StoredType type) { return entry_of(type).dtype; }

DType required_dtype_of(StoredType type) {
  const std::optional<DType> dtype = dtype_of(type);
  HONE_ASSERT(dtype, "no dtype for ", name_of(type));
  return *dtype;
}

std::optional<StoredType> stored_type_from_name(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.type;
  }
  return std::nullopt;
}

StoredType stored_type_of(DType dtype) {
  for (const Entry& entry : kEntries) {
    if (entry.dtype == dtype) return entry.type;
  }
  throw Defect(text_of("no safetensors type for ", name_of(dtype)));
}

}  // namespace hone
