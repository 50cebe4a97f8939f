#include "data/cells.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <ranges>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "core/unicode.h"

namespace hone {
namespace {

constexpr std::int64_t kSecondsADay = 86'400;

// Units per second, and the digits of a fraction.
struct UnitScale {
  std::int64_t a_second;  // units per second
  int digits;             // digits of a fraction of a second
};

UnitScale scale_of(TimeUnit unit) {
  switch (unit) {
    case TimeUnit::kSeconds:
      return {1, 0};
    case TimeUnit::kMilliseconds:
      return {1'000, 3};
    case TimeUnit::kMicroseconds:
      return {1'000'000, 6};
    case TimeUnit::kNanoseconds:
      break;
  }
  return {1'000'000'000, 9};
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
std::int64_t floor_modulo(std::int64_t a, std::int64_t b) { return a % b < 0 ? a % b + b : a % b; }

template <class... Numbers>
std::string formatted(const char* format, Numbers... numbers) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), format, numbers...);
  return text.data();
}

}  // namespace

// Source: Howard Hinnant, "chrono-compatible low-level date algorithms", civil_from_days.
std::string date_text(std::int64_t days) {
  const std::int64_t shifted = days + 719'468;
  const std::int64_t era = floor_divide(shifted, 146'097);
  const std::int64_t day_of_era = floor_modulo(shifted, 146'097);
  const std::int64_t year_of_era = (day_of_era - day_of_era / 1'460 + day_of_era / 36'524 - day_of_era / 146'096) / 365;
  const std::int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t march_month = (5 * day_of_year + 2) / 153;
  const std::int64_t day = day_of_year - (153 * march_month + 2) / 5 + 1;
  const std::int64_t month = march_month < 10 ? march_month + 3 : march_month - 9;
  const std::int64_t year = year_of_era + era * 400 + (month <= 2 ? 1 : 0);
  return formatted("%04lld-%02lld-%02lld", static_cast<long long>(year), static_cast<long long>(month),
                   static_cast<long long>(day));
}

std::string time_text(std::int64_t value, TimeUnit unit) {
  const UnitScale scale = scale_of(unit);
  const std::int64_t seconds = floor_divide(value, scale.a_second);
  const std::int64_t fraction = floor_modulo(value, scale.a_second);
  std::string text = formatted("%02lld:%02lld:%02lld", static_cast<long long>(seconds / 3'600),
                               static_cast<long long>(seconds / 60 % 60), static_cast<long long>(seconds % 60));
  if (fraction != 0) text += formatted(".%0*lld", scale.digits, static_cast<long long>(fraction));
  return text;
}

std::string timestamp_text(std::int64_t value, TimeUnit unit, bool is_utc) {
  const std::int64_t a_day = kSecondsADay * scale_of(unit).a_second;
  return date_text(floor_divide(value, a_day)) + "T" + time_text(floor_modulo(value, a_day), unit) +
         (is_utc ? "Z" : "");
}

std::string decimal_text(std::string_view big_endian, int scale) {
  HONE_ASSERT(big_endian.size() <= 32, big_endian.size());
  std::vector<unsigned> bytes;
  for (const char c : big_endian) bytes.push_back(static_cast<unsigned char>(c));
  const bool negative = !bytes.empty() && bytes.front() >= 0x80;
  // Two's complement magnitude: invert and add 1.
  if (negative) {
    unsigned carry = 1;
    for (unsigned& byte : std::views::reverse(bytes)) {
      const unsigned value = (~byte & 0xFF) + carry;
      byte = value & 0xFF;
      carry = value >> 8;
    }
  }
  std::string digits;  // least significant first
  // Long division by 10: each pass yields one decimal digit.
  while (std::ranges::any_of(bytes, [](unsigned byte) { return byte != 0; })) {
    unsigned remainder = 0;
    for (unsigned& byte : bytes) {
      const unsigned value = remainder << 8 | byte;
      byte = value / 10;
      remainder = value % 10;
    }
    digits += static_cast<char>('0' + remainder);
  }
  const auto places = static_cast<std::size_t>(std::clamp(scale, 0, 100));
  digits.resize(std::max(digits.size(), places + 1), '0');
  if (places > 0) digits.insert(places, 1, '.');
  for (int zeros = std::clamp(-scale, 0, 100); zeros > 0; --zeros) digits.insert(digits.begin(), '0');
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int mantissa = bits & 0x3FF;
  double value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

Json real_cell(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json text_cell(std::string_view bytes, std::string_view column, std::string& fault) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  if (fault.empty()) fault = text_of("column '", column, "' is not valid UTF-8");
  return nullptr;
}

Json bytes_cell(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  return Json::binary(std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
}

}  // namespace hone
