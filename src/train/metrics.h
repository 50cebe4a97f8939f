// Metrics of logged steps: writes and reads metrics.jsonl, and formats log lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tracker/metric_row.h"

namespace hone {

// Writes metrics.jsonl: one JSON object per row, "step" first, null for NaN and infinities. A row is passed to the
// operating system before append() returns, so killing the process loses at most a part of the last line.
class MetricsWriter {
 public:
  // Starts an empty file or, with resumed_step, keeps the rows of an existing file up to that step and drops later rows
  // and a partial last line. A run_name that is not empty is written into every appended row.
  explicit MetricsWriter(std::filesystem::path path, std::optional<std::int64_t> resumed_step = std::nullopt,
                         std::string run_name = {});
  void append(const MetricRow& row) const;

 private:
  std::filesystem::path path_;
  std::string run_name_;
};

// Curve of one metric: its value at each step that logged a number.
struct MetricSeries {
  std::string name;
  std::vector<double> steps;   // [points]
  std::vector<double> values;  // [points]
};

// Reads metrics.jsonl without a partial last line. Throws Error that names the first line that is not a valid row.
[[nodiscard]] std::vector<MetricRow> read_metrics(const std::filesystem::path& path);
// Returns the curve of a metric, without NaN.
[[nodiscard]] MetricSeries metric_series(std::span<const MetricRow> rows, std::string_view name);

// Formats a log line, "step 40/100 | loss 2.3142 | grad_norm 0.51 | learning_rate 4e-05", with the metrics of `names`
// that the row has, or with all metrics if `names` is empty. NaN is "n/a". total_steps 0: not known.
[[nodiscard]] std::string metric_line(const MetricRow& row, std::int64_t total_steps,
                                      std::span<const std::string_view> names = {});
// Formats the block of --metrics_block: a title and one line per metric between rules, N/A if a value is not known.
// device: for example "GPU: NVIDIA H100".
[[nodiscard]] std::string metrics_block(const MetricRow& row, std::string_view device);
// Formats a number for a log line: from 1,000 with commas and without decimals, whole numbers below that as they are,
// others with four decimals or, below 0.01 and from 1e15, with four significant digits.
[[nodiscard]] std::string metric_text(double value);

}  // namespace hone
