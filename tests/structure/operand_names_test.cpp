// Checks that operations refer to their operands by name: the index of an input or output is defined once, in the
// operation's header (docs/adding-an-operation.md). Index 0 may be used directly if there is only one.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"
#include "support/paths.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

// Returns the lines that use the index of an operand.
std::vector<std::string> lines_with_numbers(const std::string& source) {
  std::vector<std::string> found;
  for (const std::string& line : split(source, '\n')) {
    for (const std::string_view before : {".in(", ".out(", "inputs[", "outputs[", "required(inputs, ", "builder.needs(",
                                          "builder.input(", "builder.add(", "builder.accumulator(",
                                          "builder.set_accumulator(", "builder.output(", "builder.output_gradient("}) {
      for (std::size_t at = line.find(before); at != std::string::npos; at = line.find(before, at + 1)) {
        const std::size_t number = at + before.size();
        if (number < line.size() && line[number] >= '1' && line[number] <= '9') found.push_back(line);
      }
    }
  }
  return found;
}

TEST(OperandNames, ANumberIsSeen) {
  EXPECT_EQ(lines_with_numbers("x = call.in(0);\ny = call.in(2);\nz = inputs[AddIn::b];\n"),
            std::vector<std::string>{"y = call.in(2);"});
  EXPECT_EQ(lines_with_numbers("builder.set_accumulator(1, outputs[0]);").size(), 1u);
}

TEST(OperandNames, NoNumberOfAnOperandInTheOperations) {
  std::size_t sources = 0;
  for (const auto& entry : fs::recursive_directory_iterator(source_dir() / "src" / "ops")) {
    if (!entry.is_regular_file()) continue;
    ++sources;
    for (const std::string& line : lines_with_numbers(read_file(entry.path()))) {
      ADD_FAILURE() << fs::relative(entry.path(), source_dir()).string() << ": " << line;
    }
  }
  EXPECT_GT(sources, 100u);
}

}  // namespace
}  // namespace hone::test
