// The figures of each logged step: metrics.jsonl, the line on the terminal, and curves read back.
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

// metrics.jsonl: one JSON object a row, "step" first, null for NaN and infinities. A row is on the disk's side of the
// process before append returns, so that a kill loses at most a part of the last line.
class MetricsWriter {
 public:
  // Keeps the rows up to `resumed_step` of a file that is there, dropping later ones and a half-written last line;
  // without a step it starts anew.
  // `run_name`, where there is one, stands in every row that is appended.
  explicit MetricsWriter(std::filesystem::path path, std::optional<std::int64_t> resumed_step = std::nullopt,
                         std::string run_name = {});
  void append(const MetricRow& row) const;

 private:
  std::filesystem::path path_;
  std::string run_name_;
};

// One curve: a value at each step where it was logged as a number.
struct MetricSeries {
  std::string name;
  std::vector<double> steps;
  std::vector<double> values;
};

// Throws Error naming the line that is no row; a half-written last line is left out.
[[nodiscard]] std::vector<MetricRow> read_metrics(const std::filesystem::path& path);
[[nodiscard]] MetricSeries metric_series(std::span<const MetricRow> rows, std::string_view name);

// "step 40/100 | loss 2.3142 | grad_norm 0.51 | learning_rate 4e-05": the metrics of `names` that the row has, or all
// of them; n/a for NaN. total_steps 0: not known.
[[nodiscard]] std::string metric_line(const MetricRow& row, std::int64_t total_steps,
                                      std::span<const std::string_view> names = {});
// The block of --metrics_block, ten lines between rules; `device`: "GPU: NVIDIA H100". N/A for what is not known.
[[nodiscard]] std::string metrics_block(const MetricRow& row, std::string_view device);
// A number as that line shows it: counts with commas, others in four significant digits or more.
[[nodiscard]] std::string metric_text(double value);

}  // namespace hone
