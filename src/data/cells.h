// Values of typed columns as JSON has them; for Parquet and Arrow.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"

namespace hone {

enum class TimeUnit : std::uint8_t { seconds, milliseconds, microseconds, nanoseconds };

// ISO 8601: "2024-02-29"; "13:05:00.250000"; "2024-02-29T13:05:00", with "Z" where it is adjusted to UTC. A fraction
// has as many digits as the unit, and is left out where it is 0.
[[nodiscard]] std::string date_text(std::int64_t days);
[[nodiscard]] std::string time_text(std::int64_t value, TimeUnit unit);
[[nodiscard]] std::string timestamp_text(std::int64_t value, TimeUnit unit, bool is_utc);
// A two's complement integer of at most 32 bytes, the most significant first, divided by 10^scale: "-12.50".
[[nodiscard]] std::string decimal_text(std::string_view big_endian, int scale);
// IEEE half precision.
[[nodiscard]] double half_value(std::uint16_t bits);

// null for a NaN or an infinity.
[[nodiscard]] Json real_cell(double value);
// Text, if it is valid UTF-8; else null, and `fault` says that the column is not, unless it says something.
[[nodiscard]] Json text_cell(std::string_view bytes, std::string_view column, std::string& fault);
// Bytes of which nobody said that they are text: text where they are valid UTF-8, else binary.
[[nodiscard]] Json bytes_cell(std::string_view bytes);

}  // namespace hone
