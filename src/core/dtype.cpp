#include "core/dtype.h"

#include <array>

#include "core/error.h"

namespace hone {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  std::size_t size;
};
constexpr std::array<Entry, 6> kEntries{{{DType::kF32, "f32", 4},
                                         {DType::kBf16, "bf16", 2},
                                         {DType::kF64, "f64", 8},
                                         {DType::kI32, "i32", 4},
                                         {DType::kI64, "i64", 8},
                                         {DType::kU8, "u8", 1}}};

const Entry& entry_of(DType dtype) { return kEntries[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::size_t size_of(DType dtype) { return entry_of(dtype).size; }
std::string_view name_of(DType dtype) { return entry_of(dtype).name; }
bool is_floating(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF64; }

DType dtype_from_name(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  throw Error(text_of("unknown dtype '", name, "', expected f32, bf16, f64, i32, i64 or u8"));
}

}  // namespace hone
