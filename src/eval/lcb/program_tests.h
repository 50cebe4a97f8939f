// LiveCodeBench's test cases, and what counts as passing one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace hone {

struct ProgramTests {
  std::vector<std::string> inputs;   // standard input; for a function, its arguments, one JSON value a line
  std::vector<std::string> outputs;  // what is to be printed; for a function, what it is to return, as JSON
  std::string function;              // that is called; empty: the program is run
};

// From a row of code_generation_lite: the public cases, then the private ones (JSON, or base64 of what zlib made of a
// pickled text of JSON), and metadata's func_name. Throws Error with the reason alone.
[[nodiscard]] ProgramTests read_program_tests(const Json& row);

// The text that Python pickled, of any protocol; throws Error where it is something else.
[[nodiscard]] std::string unpickled_text(std::string_view bytes);

// Whether the texts, stripped, have the same number of lines, and each two, stripped, are the same or hold the same
// decimal numbers between white space (as Python's Decimal reads and compares them).
[[nodiscard]] bool same_lines(std::string_view printed, std::string_view expected);

// Whether a value that the runner tells is the expected one, as Python's == has it: 1, 1.0 and True are equal. Told
// are lists, maps, and words: "n" None, "i:12" an integral number, "f:0.5" another one, "s:text".
[[nodiscard]] bool same_value(const Json& told, const Json& expected);

}  // namespace hone
