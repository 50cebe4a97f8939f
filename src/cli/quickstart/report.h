// What a quickstart leaves to look at: a table, curves in the terminal, a page.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace hone {

// A stage that has run.
struct QuickstartStage {
  std::string name;
  double seconds = 0;             // of training
  std::filesystem::path folder;   // with metrics.jsonl
  std::filesystem::path results;  // of its evaluation, with results.json
};

// What the run was started with.
struct QuickstartSetting {
  std::int64_t seed = 0;
  std::string machine;
};

struct QuickstartReport {
  std::string text;            // for the terminal
  std::filesystem::path html;  // where the page was written
};

// Reads the stages' metrics and results. Writes ROOT/report.html, its tables as text to ROOT/report.txt and its plots to
// ROOT/plots/*.svg.
[[nodiscard]] QuickstartReport write_quickstart_report(const std::filesystem::path& root,
                                                       std::span<const QuickstartStage> stages,
                                                       const QuickstartSetting& setting);

}  // namespace hone
