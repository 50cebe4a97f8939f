// Marks that Math-Verify drops before it compares two answers and that strict equality compares: units, currency and
// degree signs, primes, "th" and the bases of numbers.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace hone {

// Set of marks, each in a canonical form: "km" for "\text{ km}" and "kilometres", "base7" for "_7" and "_{7}".
using DroppedMarks = std::set<std::string>;

// Adds the unit after a value, as split_units() returns it or as plain text; adds nothing if it is empty.
void note_unit(DroppedMarks& marks, std::string_view unit);
// Adds the signs that normalisation removes: "\$", a prime or inch mark at the end, "\mathrm{th}".
void note_signs(DroppedMarks& marks, std::string_view latex);
// Adds the marks that the parser skips in normalised LaTeX: bases other than ten, and degree signs.
void note_subscripts(DroppedMarks& marks, std::string_view latex);
// Adds the marks around a plain number that is the only number of a text: a currency sign in `before`, a unit or a base
// in `behind`.
void note_around_number(DroppedMarks& marks, std::string_view before, std::string_view behind);

}  // namespace hone
