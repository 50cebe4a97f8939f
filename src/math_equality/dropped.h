// What the reference drops from an answer before it compares, and strict equality does not: units, currency and degree
// signs, primes, ordinals, the bases of numbers.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace hone {

// Each in one form, however it was written: "km" for "\text{ km}" and "kilometres", "base7" for "_7" and "_{7}".
using DroppedMarks = std::set<std::string>;

// The unit behind a value, as split_units parts it or as plain text; nothing where it is empty.
void note_unit(DroppedMarks& marks, std::string_view unit);
// Signs that normalisation removes: "\$", a prime or inch mark at the end, "\mathrm{th}".
void note_signs(DroppedMarks& marks, std::string_view latex);
// What the parser skips in normalised LaTeX: bases, but for ten, and degree signs.
void note_subscripts(DroppedMarks& marks, std::string_view latex);
// Around a plain number that is all of a text: a currency before it, a unit or base behind it.
void note_around_number(DroppedMarks& marks, std::string_view before, std::string_view behind);

}  // namespace hone
