// Checks the code blocks in documents: whole files of the example, which is built and tested, and excerpts of sources.
// Checks that README leads to the answers of a stranger's questions.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "core/files.h"
#include "core/strings.h"
#include "support/paths.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

// Returns the ```cpp blocks of a document by file name. The line before each block names its file as `FILE`.
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

// A fenced block of a document that shows parts of a file.
struct Excerpt {
  std::string file;
  std::vector<std::string> lines;
};

// Returns the fenced blocks of a document in order. The line before each block names its file as `FILE`.
std::vector<Excerpt> excerpts_of(const fs::path& document) {
  std::vector<Excerpt> excerpts;
  std::string before;
  bool inside = false;
  for (const std::string& line : split(read_file(document), '\n')) {
    if (line.starts_with("```")) {
      inside = !inside;
      if (!inside) continue;
      const bool names_file = before.size() > 2 && before.front() == '`' && before.back() == '`';
      EXPECT_TRUE(names_file) << document << ": no file is named before a block";
      excerpts.push_back({.file = names_file ? before.substr(1, before.size() - 2) : std::string(), .lines = {}});
    } else if (inside) {
      excerpts.back().lines.push_back(line);
    } else if (!line.empty()) {
      before = line;
    }
  }
  EXPECT_FALSE(inside) << document << ": a block is not closed";
  return excerpts;
}

// Returns the words of a line without its // comment, each followed by a space.
std::string words_of(const std::string& line) {
  std::istringstream words(line.substr(0, line.find("//")));
  std::string result;
  for (std::string word; words >> word;) result += word + " ";
  return result;
}

// Checks that the blocks of a document are excerpts of the files named before them. Comments and white space may
// differ. A line "..." separates parts that follow each other in the file.
void expect_excerpts(const std::string& document) {
  const std::vector<Excerpt> excerpts = excerpts_of(source_dir() / "docs" / document);
  EXPECT_FALSE(excerpts.empty()) << document;
  for (const Excerpt& excerpt : excerpts) {
    std::string text;
    for (const std::string& line : split(read_file(source_dir() / excerpt.file), '\n')) text += words_of(line);
    std::vector<std::string> parts(1);
    for (const std::string& line : excerpt.lines) {
      if (line == "...") {
        parts.emplace_back();
      } else {
        parts.back() += words_of(line);
      }
    }
    std::size_t at = 0;
    for (const std::string& part : parts) {
      const std::size_t found = text.find(part, at);
      ASSERT_NE(found, std::string::npos) << document << ": " << excerpt.file << " does not hold " << part;
      at = found + part.size();
    }
  }
}

TEST(Documents, ShowTheOperationOfTheExample) {
  expect_blocks("adding-an-operation.md", {"ops/toy_square/toy_square.h", "ops/toy_square/toy_square.cpp",
                                           "ops/toy_square/cpu.cpp", "toy_square_test.cpp"});
}

TEST(Documents, ShowTheFamilyOfTheExample) { expect_blocks("adding-a-family.md", {"model/toy/toy.cpp"}); }

TEST(Documents, ShowExcerptsOfTheSources) {
  for (const char* document : {"tour.md", "design.md"}) expect_excerpts(document);
}

// README answers each question by a row of links: to a page that explains, and to the code.
TEST(Documents, ReadmeAnswersTheQuestionsOfAStranger) {
  struct Answer {
    const char* question;
    const char* link;
    const char* content;  // a text that the linked file must hold
  };
  const std::vector<Answer> answers{
      {"Where is a loss computed?", "docs/tour.md", "with_model_losses(weighted_sum(terms.term, weights)"},
      {"Where is a loss computed?", "src/rl/policy_program.cpp", "Program trace_policy("},
      {"Where is a loss computed?", "src/train/loss_program.cpp", "Program trace_training("},
      {"Where is memory planned?", "docs/design.md", "Blocks are placed in order of"},
      {"Where is memory planned?", "src/program/memory_plan.cpp", "MemoryPlan plan_memory("},
      {"How is a reward added?", "docs/rewards.md", "reward_funcs: [accuracy, rewards.py:polite"},
      {"How is a reward added?", "src/reward/format/format.cpp", "void register_format("},
      {"Why are two runs bitwise equal?", "docs/design.md", "Floating-point addition is not associative"},
      {"What is not supported?", "docs/limits.md", "No float16 training"},
  };
  const std::vector<std::string> lines = split(read_file(source_dir() / "README.md"), '\n');
  for (const Answer& answer : answers) {
    const auto row = std::ranges::find_if(
        lines, [&](const std::string& line) { return line.starts_with(std::string("| ") + answer.question); });
    ASSERT_NE(row, lines.end()) << answer.question;
    EXPECT_NE(row->find(std::string("](") + answer.link), std::string::npos)
        << *row << " does not name " << answer.link;
    EXPECT_NE(read_file(source_dir() / answer.link).find(answer.content), std::string::npos)
        << answer.link << " does not hold " << answer.content;
  }
}

}  // namespace
}  // namespace hone::test
