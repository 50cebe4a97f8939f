// What says how much of a capacity is in use.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

namespace hone {

// The name of a number of rows in use. The numbers are data of each run; what a count is in a program, its capacity and
// who says it, stands there (CountSpec). Equal names are equal counts, in whatever program.
class Count {
 public:
  constexpr Count() = default;  // Count::none
  // A name of 1 to 32 characters of a to z, 0 to 9 and _, of which a letter is the first. Throws Error for any other.
  explicit Count(std::string_view name);

  [[nodiscard]] std::string_view name() const;  // empty for none
  constexpr auto operator<=>(const Count&) const = default;

  static const Count none;       // all of the capacity
  static const Count tokens;     // rows of tokens
  static const Count sequences;  // documents laid end to end in those rows
  static const Count samples;    // rows whose logits are wanted

 private:
  constexpr explicit Count(std::uint16_t id) : id_(id) {}

  std::uint16_t id_ = 0;  // place among the names
};

inline constexpr Count Count::none{};
inline constexpr Count Count::tokens{std::uint16_t{1}};
inline constexpr Count Count::sequences{std::uint16_t{2}};
inline constexpr Count Count::samples{std::uint16_t{3}};

}  // namespace hone
