// Writes measured figures to a JSON file such as bench/results/*.json: an array with one row per line, which
// bench/list_results.sh lists.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace hone {

struct ResultRow {
  std::string what;   // "kernel rms_norm", "matmul", "train"
  std::string shape;  // sizes and dtypes of the measured work
  double figure = 0;
  std::string unit;
};

// Writes the rows, each with the machine, the command, the UTC date and the commit of the working directory (empty
// outside a git checkout). Throws Error if the file cannot be written.
void write_results(const std::filesystem::path& path, std::span<const ResultRow> rows, const std::string& machine,
                   const std::string& command);

// Returns the text "hone bench NAME ARGUMENTS".
[[nodiscard]] std::string command_line(std::string_view name, std::span<const std::string> arguments);

// Returns the commit of the git checkout that contains `folder`, 40 hexadecimal digits, or an empty string. Reads the
// files of .git, so that git need not be installed.
[[nodiscard]] std::string commit_of(std::filesystem::path folder);

// Returns the date and minute, "2026-01-02 03:04 UTC".
[[nodiscard]] std::string utc_now();

}  // namespace hone
