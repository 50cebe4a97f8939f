// Writes the report of a quickstart: a table and curves for the terminal, and the same with more detail as an HTML
// page.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace hone {

// A training stage that has finished.
struct QuickstartStage {
  std::string name;               // pretrain, sft or grpo
  double seconds = 0;             // duration of the training
  std::filesystem::path folder;   // output folder, with metrics.jsonl
  std::filesystem::path results;  // folder of its evaluation, with results.json
};

// Settings of the run that the page shows.
struct QuickstartSetting {
  std::int64_t seed = 0;
  std::string machine;  // name of the device; "cpu" for the host
};

struct QuickstartReport {
  std::string text;            // text for the terminal
  std::filesystem::path html;  // path of the page
};

// Reads the metrics and the results of the stages. Writes ROOT/report.html, its tables as text to ROOT/report.txt and
// its plots to ROOT/plots/*.svg. Throws Error if a file is missing.
[[nodiscard]] QuickstartReport write_quickstart_report(const std::filesystem::path& root,
                                                       std::span<const QuickstartStage> stages,
                                                       const QuickstartSetting& setting);

}  // namespace hone
