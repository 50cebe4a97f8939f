#include "train/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

MetricRow row_of(const Json& json, const std::string& where) {
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
    throw Error(where, "expected a JSON object with a whole number \"step\"");
  }
  MetricRow row;
  for (const auto& [name, value] : json.items()) {
    if (name == "step") {
      row.step = value;
    } else if (value.is_number()) {
      row.values.emplace_back(name, value);
    } else if (value.is_null()) {
      row.values.emplace_back(name, std::numeric_limits<double>::quiet_NaN());
    }
  }
  return row;
}

// Returns the lines that end in a newline. Text after the last newline was cut off when the process was killed.
std::vector<std::string> whole_lines(const std::string& text) {
  std::vector<std::string> lines = split(text, '\n');
  lines.pop_back();
  return lines;
}

// Formats a value, or returns "N/A" for NaN and a missing value.
std::string in_format(const char* format, const std::optional<double>& value) {
  if (!value || std::isnan(*value)) return "N/A";
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, *value);
  return buffer.data();
}

std::string line_of(const fs::path& path, std::size_t index) { return text_of(path.string(), ":", index + 1); }

}  // namespace

MetricsWriter::MetricsWriter(fs::path path, std::optional<std::int64_t> resumed_step, std::string run_name)
    : path_(std::move(path)), run_name_(std::move(run_name)) {
  std::string kept;
  if (resumed_step && fs::exists(path_)) {
    const std::vector<std::string> lines = whole_lines(read_file(path_));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (trim(lines[i]).empty()) continue;
      const std::string where = line_of(path_, i);
      if (row_of(parse_json(lines[i], where), where).step <= *resumed_step) kept += lines[i] + "\n";
    }
  }
  write_file(path_, kept);
}

void MetricsWriter::append(const MetricRow& row) const {
  Json json = Json::object();
  json["step"] = row.step;
  if (!run_name_.empty()) json["run_name"] = run_name_;
  for (const auto& [name, value] : row.values) json[name] = std::isfinite(value) ? Json(value) : Json(nullptr);
  append_file(path_, json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::vector<MetricRow> read_metrics(const fs::path& path) {
  std::vector<MetricRow> rows;
  const std::vector<std::string> lines = whole_lines(read_file(path));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (trim(lines[i]).empty()) continue;
    const std::string where = line_of(path, i);
    rows.push_back(row_of(parse_json(lines[i], where), where));
  }
  return rows;
}

MetricSeries metric_series(std::span<const MetricRow> rows, std::string_view name) {
  MetricSeries series{.name = std::string(name)};
  for (const MetricRow& row : rows) {
    const std::optional<double> value = row.find(name);
    if (!value || std::isnan(*value)) continue;
    series.steps.push_back(static_cast<double>(row.step));
    series.values.push_back(*value);
  }
  return series;
}

std::string metric_text(double value) {
  constexpr double kGrouped = 1000;
  constexpr double kExact = 1e15;
  if (std::isnan(value)) return "n/a";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  if (size >= kGrouped && size < kExact) return format_count(std::llround(value));
  std::array<char, 32> buffer{};
  const bool whole = value == std::floor(value);
  const bool plain = size >= 0.01 && size < kGrouped;
  std::snprintf(buffer.data(), buffer.size(), whole && size < kGrouped ? "%.0f" : plain ? "%.4f" : "%.4g", value);
  return buffer.data();
}

std::string metrics_block(const MetricRow& row, std::string_view device) {
  constexpr std::size_t kWidth = 80;
  constexpr std::size_t kLabel = 18;
  const std::string rule(kWidth, '=');
  std::string text = text_of(rule, "\nStep ", row.step, " Metrics (", device, "):\n", rule, "\n");
  const auto line = [&](std::string_view label, const std::string& value) {
    std::string left = text_of("  ", label, ":");
    left.resize(std::max(left.size() + 1, kLabel), ' ');
    text += text_of(left, value, "\n");
  };
  const auto plain = [&](std::string_view label, const char* format, std::string_view name) {
    line(label, in_format(format, row.find(name)));
  };
  plain("Loss", "%.4f", "loss");
  plain("Tokens/sec", "%.2f", "tokens_per_second");
  plain("Step time", "%.3fs", "step_time");
  plain("GPU Util", "%.1f%%", "device_utilization");
  const double used = row.find("device_memory_gib").value_or(std::nan(""));
  const double total = row.find("device_memory_total_gib").value_or(std::nan(""));
  const bool known = device.starts_with("GPU") && !std::isnan(used) && !std::isnan(total) && total > 0;
  line("GPU Mem", known ? text_of(in_format("%.2fGB", used), " / ", in_format("%.2fGB", total), " (",
                                  in_format("%.1f%%", 100 * used / total), ")")
                        : "N/A");
  plain("CPU Util", "%.1f%%", "cpu_utilization");
  plain("Process Mem", "%.2fGB", "process_memory_gib");
  plain("System Mem", "%.1f%%", "system_memory");
  return text + rule + "\n";
}

std::string metric_line(const MetricRow& row, std::int64_t total_steps, std::span<const std::string_view> names) {
  std::string line = text_of("step ", row.step);
  if (total_steps > 0) line += text_of("/", total_steps);
  const auto add = [&](std::string_view name, double value) { line += text_of(" | ", name, " ", metric_text(value)); };
  if (names.empty()) {
    for (const auto& [name, value] : row.values) add(name, value);
  }
  for (const std::string_view name : names) {
    if (const std::optional<double> value = row.find(name)) add(name, *value);
  }
  return line;
}

}  // namespace hone
