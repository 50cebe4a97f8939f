// Reads the test cases of LiveCodeBench and compares results with the expected ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace hone {

struct ProgramTests {
  std::vector<std::string> inputs;   // standard input; for a function its arguments, one JSON value per line
  std::vector<std::string> outputs;  // expected output; for a function the expected result as JSON
  std::string function;              // name of the function to call; empty: run the program
};

// Reads a row of code_generation_lite: the public cases, then the private ones (JSON, or base64 of a zlib-compressed
// pickle of a JSON text), and func_name of the column metadata. Throws Error with the reason only.
[[nodiscard]] ProgramTests read_program_tests(const Json& row);

// Returns the text in a Python pickle of any protocol. Throws Error if the pickle contains anything else.
[[nodiscard]] std::string unpickled_text(std::string_view bytes);

// Returns true if the stripped texts have the same number of lines and all stripped lines are equal or contain the same
// decimal numbers separated by white space, as Python's Decimal reads and compares them.
[[nodiscard]] bool same_lines(std::string_view printed, std::string_view expected);

// Returns true if a value reported by the runner equals the expected one by Python's ==, for which 1, 1.0 and True are
// equal. The runner reports lists, maps and these strings: "n" for None, "i:12" for an integral number, "f:0.5" for
// another number, "s:TEXT" for a text.
[[nodiscard]] bool same_value(const Json& told, const Json& expected);

}  // namespace hone
