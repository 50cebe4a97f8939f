// The code that documents show is the code of the example, which is built and tested.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "core/files.h"
#include "core/strings.h"
#include "support/paths.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

// The ```cpp blocks of a document by the file that the line `FILE` before each names.
std::map<std::string, std::string> code_blocks(const fs::path& document) {
  std::map<std::string, std::string> blocks;
  std::string before, file;
  bool inside = false;
  for (const std::string& line : split(read_file(document), '\n')) {
    if (!inside && line.starts_with("```cpp")) {
      inside = true;
      EXPECT_GE(before.size(), 3u) << document;
      EXPECT_TRUE(before.front() == '`' && before.back() == '`') << document << ": no file is named before a block";
      file = before.substr(1, before.size() - 2);
      EXPECT_FALSE(blocks.contains(file)) << file << " is shown twice";
      blocks[file];
    } else if (inside && line == "```") {
      inside = false;
    } else if (inside) {
      blocks[file] += line + "\n";
    } else if (!line.empty()) {
      before = line;
    }
  }
  EXPECT_FALSE(inside) << document << ": a block is not closed";
  return blocks;
}

void expect_blocks(const std::string& document, const std::vector<std::string>& files) {
  const auto blocks = code_blocks(source_dir() / "docs" / document);
  EXPECT_EQ(blocks.size(), files.size()) << document;
  for (const std::string& file : files) {
    ASSERT_TRUE(blocks.contains(file)) << document << " does not show " << file;
    EXPECT_EQ(blocks.at(file), read_file(source_dir() / "tests/structure/example" / file)) << document;
  }
}

TEST(Documents, ShowTheOperationOfTheExample) {
  expect_blocks("adding-an-operation.md", {"ops/toy_square/toy_square.h", "ops/toy_square/toy_square.cpp",
                                           "ops/toy_square/cpu.cpp", "toy_square_test.cpp"});
}

TEST(Documents, ShowTheFamilyOfTheExample) { expect_blocks("adding-a-family.md", {"model/toy/toy.cpp"}); }

}  // namespace
}  // namespace hone::test
