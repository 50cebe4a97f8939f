// Checks that rates of devices (FLOP/s, bytes/s) are defined only in src/backend/device_model.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "core/files.h"
#include "core/regex.h"
#include "core/strings.h"
#include "support/paths.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

const fs::path kTable = "backend/device_model.cpp";

std::vector<std::string> matches(const std::string& text, const Regex& pattern) {
  std::vector<std::string> found;
  pattern.for_each_match(text, [&](const RegexMatch& match) { found.emplace_back(match.group); });
  return found;
}

// Returns the lines without comments.
std::vector<std::string> code_lines(const fs::path& path) {
  std::vector<std::string> lines = split(read_file(path), '\n');
  for (std::string& line : lines) line.resize(std::min(line.find("//"), line.size()));
  return lines;
}

// Returns true for numbers that look like rates, such as 6.5e14 and 1e11. The powers 1e9, 1e12 and 1e15 are units and
// bounds.
bool is_rate(double value) {
  const double thousands = std::log10(value) / 3;
  return value >= 1e10 && value < 1e16 && std::abs(thousands - std::round(thousands)) > 1e-9;
}

TEST(DeviceRates, StandInOneTable) {
  const Regex number(R"(\b([0-9][0-9.']*[eE]\+?[0-9]+))");
  const Regex text(R"re("([^"]*)")re");
  const fs::path src = source_dir() / "src";
  std::set<std::string> names;
  std::size_t rates = 0;
  for (const std::string& line : code_lines(src / kTable)) {
    if (line.find("{.name = \"") == std::string::npos) continue;
    if (line.find("peak_flops") != std::string::npos) names.insert(matches(line, text).at(0));
    for (const std::string& each : matches(line, number)) rates += is_rate(std::stod(each)) ? 1 : 0;
  }
  EXPECT_GE(names.size(), 20u);
  EXPECT_GE(rates, 20u);
  for (const auto& entry : fs::recursive_directory_iterator(src)) {
    const fs::path path = fs::relative(entry.path(), src);
    if (!entry.is_regular_file() || path == kTable) continue;
    for (const std::string& line : code_lines(entry.path())) {
      // Regular expressions are slow, so skip lines that cannot match.
      if (line.find('e') == std::string::npos && line.find('"') == std::string::npos) continue;
      for (const std::string& each : matches(line, number))
        EXPECT_FALSE(is_rate(std::stod(each))) << path << ": " << line;
      for (const std::string& each : matches(line, text)) {
        for (const std::string& name : names) {
          EXPECT_EQ(each.find(name), std::string::npos) << path << ": " << line;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hone::test
