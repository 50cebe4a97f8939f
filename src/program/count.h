// Names for the numbers of rows in use. Programs have static shapes; a count tells how many rows of a tensor hold data.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

namespace hone {

// Name of a number of rows in use. The number itself is data of each run. The program defines the capacity of a count
// and where its number comes from (CountSpec). Counts with equal names compare equal, also across programs.
class Count {
 public:
  constexpr Count() = default;  // Count::none
  // Takes a name of 1 to 32 characters: a to z, 0 to 9 and _, beginning with a letter. Throws Error for other names.
  explicit Count(std::string_view name);

  [[nodiscard]] std::string_view name() const;  // empty for Count::none
  constexpr auto operator<=>(const Count&) const = default;

  static const Count none;       // no count: all rows are in use
  static const Count tokens;     // rows of tokens
  static const Count sequences;  // sequences packed into the rows of tokens
  static const Count samples;    // rows for which logits are computed

 private:
  constexpr explicit Count(std::uint16_t id) : id_(id) {}

  std::uint16_t id_ = 0;  // index into the table of names
};

inline constexpr Count Count::none{};
inline constexpr Count Count::tokens{std::uint16_t{1}};
inline constexpr Count Count::sequences{std::uint16_t{2}};
inline constexpr Count Count::samples{std::uint16_t{3}};

}  // namespace hone
