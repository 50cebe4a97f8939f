// Conversion of typed column values (Parquet, Arrow) to JSON values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"

namespace hone {

enum class TimeUnit : std::uint8_t { kSeconds, kMilliseconds, kMicroseconds, kNanoseconds };

// Dates and times in ISO 8601: "2024-02-29", "13:05:00.250000", "2024-02-29T13:05:00". A timestamp in UTC ends with
// "Z". A fraction has as many digits as the unit and is omitted if it is 0. `days`: since 1970-01-01; `value`: in
// `unit`, since midnight or since 1970-01-01T00:00.
[[nodiscard]] std::string date_text(std::int64_t days);
[[nodiscard]] std::string time_text(std::int64_t value, TimeUnit unit);
[[nodiscard]] std::string timestamp_text(std::int64_t value, TimeUnit unit, bool is_utc);
// Decimal text ("-12.50") of a big-endian two's complement integer of at most 32 bytes, divided by 10^scale.
[[nodiscard]] std::string decimal_text(std::string_view big_endian, int scale);
// Value of an IEEE half-precision number.
[[nodiscard]] double half_value(std::uint16_t bits);

// Most values that lists in a row of a file may hold.
inline constexpr std::int64_t kMostValuesARow = std::int64_t{1} << 22;

// JSON number, or null for a NaN or an infinity.
[[nodiscard]] Json real_cell(double value);
// JSON string if the bytes are valid UTF-8. Otherwise returns null, and if `fault` is empty, sets it to a message that
// names the column.
[[nodiscard]] Json text_cell(std::string_view bytes, std::string_view column, std::string& fault);
// JSON value of bytes that the schema does not declare as text: a string if they are valid UTF-8, otherwise a binary
// value.
[[nodiscard]] Json bytes_cell(std::string_view bytes);

}  // namespace hone
