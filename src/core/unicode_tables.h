// Generated tables that unicode.cpp searches; scripts/make_unicode_tables.py writes unicode_tables.cpp.
#pragma once

#include <cstdint>
#include <span>

namespace hone {

struct PropertyRun {  // code points from `first` up to the `first` of the next run
  char32_t first;
  std::uint16_t properties;  // bits 0-4: general category; bits 5-11: flags (class Properties)
};
struct CombiningRun {
  char32_t first;
  std::uint8_t combining_class;
};
struct Decomposition {  // full decomposition: decomposed_code_points()[offset .. offset + length)
  char32_t code_point;
  std::uint16_t offset;
  std::uint8_t length;
};
struct Composition {
  char32_t first, second, composed;
};
struct CaseMapping {
  char32_t code_point;
  const char* text;
};

// All tables except decomposed_code_points() are sorted by code point.
[[nodiscard]] std::span<const PropertyRun> property_runs();
[[nodiscard]] std::span<const CombiningRun> combining_runs();
[[nodiscard]] std::span<const Decomposition> decompositions();
[[nodiscard]] std::span<const Decomposition> compatibility_decompositions();  // where NFKD differs from NFD
[[nodiscard]] std::span<const char32_t> decomposed_code_points();
[[nodiscard]] std::span<const Composition> compositions();
[[nodiscard]] std::span<const CaseMapping> lower_case_mappings();
[[nodiscard]] std::span<const CaseMapping> token_lower_case_mappings();  // where the normalizer Lowercase differs
[[nodiscard]] std::span<const CaseMapping> upper_case_mappings();

}  // namespace hone
