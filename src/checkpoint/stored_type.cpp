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
constexpr std::array<Entry, 15> kEntries{{{StoredType::boolean, "BOOL", 1, {}},
                                          {StoredType::u8, "U8", 1, DType::u8},
                                          {StoredType::i8, "I8", 1, {}},
                                          {StoredType::f8_e5m2, "F8_E5M2", 1, {}},
                                          {StoredType::f8_e4m3, "F8_E4M3", 1, {}},
                                          {StoredType::i16, "I16", 2, {}},
                                          {StoredType::u16, "U16", 2, {}},
                                          {StoredType::f16, "F16", 2, {}},
                                          {StoredType::bf16, "BF16", 2, DType::bf16},
                                          {StoredType::i32, "I32", 4, DType::i32},
                                          {StoredType::u32, "U32", 4, {}},
                                          {StoredType::f32, "F32", 4, DType::f32},
                                          {StoredType::f64, "F64", 8, DType::f64},
                                          {StoredType::i64, "I64", 8, DType::i64},
                                          {StoredType::u64, "U64", 8, {}}}};

const Entry& entry_of(StoredType type) { return kEntries[static_cast<std::size_t>(type)]; }

}  // namespace

std::size_t size_of(StoredType type) { return entry_of(type).size; }
std::string_view name_of(StoredType type) { return entry_of(type).name; }
std::optional<DType> dtype_of(StoredType type) { return entry_of(type).dtype; }

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
