// Measured figures in a file: bench/results/*.json, one row a line, listed by bench/list_results.sh.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace hone {

struct ResultRow {
  std::string what;   // "kernel rms_norm", "matmul", "train"
  std::string shape;  // what it was measured on
  double figure = 0;
  std::string unit;
};

// Writes the rows with the machine, the command, the commit that the working folder is at (empty where it is no
// checkout) and the date, in UTC.
void write_results(const std::filesystem::path& path, std::span<const ResultRow> rows, const std::string& machine,
                   const std::string& command);

// "hone bench NAME ARGUMENTS".
[[nodiscard]] std::string command_line(std::string_view name, std::span<const std::string> arguments);

// The commit of the checkout that `folder` lies in, 40 digits, or nothing.
[[nodiscard]] std::string commit_of(std::filesystem::path folder);

}  // namespace hone
