// Tests that docs/reference.md equals the output of `hone reference`.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/registry.h"
#include "core/files.h"
#include "core/strings.h"
#include "rl/options.h"
#include "support/paths.h"
#include "train/foreign_keys.h"

namespace hone::test {
namespace {

std::string reference() {
  CommandRegistry registry;
  register_all_cli(registry);
  testing::internal::CaptureStdout();
  const std::vector<std::string> arguments{"reference"};
  EXPECT_EQ(run_command_line(registry, arguments), 0);
  return testing::internal::GetCapturedStdout();
}

TEST(Reference, ThePageIsCurrent) {
  const auto path = source_dir() / "docs/reference.md";
  const std::string text = reference();
  if (std::getenv("HONE_UPDATE_FIXTURES") != nullptr) write_file(path, text);
  EXPECT_EQ(text, read_file(path)) << "update it: hone reference > docs/reference.md";
}

TEST(Reference, EveryKeyIsThere) {
  const std::string text = reference();
  GrpoOptions grpo;
  const OptionTable table(grpo);
  for (const Option& option : table.options()) {
    EXPECT_NE(text.find("| `" + option.name + "` |"), std::string::npos) << option.name;
  }
  for (const ForeignKey& key : training_foreign_keys()) {
    EXPECT_NE(text.find("| `" + std::string(key.name) + "` |"), std::string::npos) << key.name;
  }
  CommandRegistry registry;
  register_all_cli(registry);
  for (const Command& command : registry.commands()) {
    EXPECT_NE(text.find("## hone " + command.name + "\n"), std::string::npos) << command.name;
  }
}

// Every row of a table has as many cells as its header, also if a help text contains a '|'.
TEST(Reference, TablesAreWhole) {
  std::size_t cells = 0;
  for (const std::string& line : split(reference(), '\n')) {
    if (!line.starts_with("|")) {
      cells = 0;
      continue;
    }
    std::size_t bars = 0;
    for (std::size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\') ? 1 : 0;
    if (cells == 0) cells = bars;
    EXPECT_EQ(bars, cells) << line;
  }
}

}  // namespace
}  // namespace hone::test
