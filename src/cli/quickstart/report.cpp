#include "cli/quickstart/report.h"
#include "cli/quickstart/particulars.h"

#include <array>
#include <cstdio>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/plot.h"
#include "core/strings.h"
#include "core/terminal.h"
#include "train/metrics.h"

namespace hone {
namespace {

struct StageScore {
  double accuracy = 0;  // 0 to 1
  double low = 0;       // bounds of the 95% confidence interval of the accuracy
  double high = 0;
  double mean_tokens = 0;  // tokens per answer
  Json groups;             // accuracy by group, as in results.json; null if there are no groups
};

StageScore score_of(const QuickstartStage& stage) {
  const Json results = read_json(stage.results / "results.json");
  const Json& task = results.at("tasks").front();
  StageScore score;
  score.mean_tokens = task.at("mean_tokens").get<double>();
  score.groups = task.value("groups", Json());
  for (const auto& [name, value] : task.items()) {
    if (!name.starts_with("avg@")) continue;
    score.accuracy = value.at("value").get<double>();
    score.low = value.at("low").get<double>();
    score.high = value.at("high").get<double>();
  }
  return score;
}

template <class... Values>
std::string printed(const char* format, Values... values) {
  std::array<char, 200> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, values...);
  return buffer.data();
}

struct KindsTable {
  std::string text;
  std::string html;
};

// Returns the accuracy by kind of problem, with a row for each kind and a column for each stage, as text and as HTML.
// Both are empty if the evaluations have no groups.
KindsTable kinds_table(std::span<const QuickstartStage> stages, std::span<const StageScore> scores) {
  KindsTable table;
  if (scores.empty() || !scores[0].groups.is_object()) return table;
  table.text = "\naccuracy by kind of problem\n  kind                    problems";
  std::string html = "<table><tr><th>kind of problem</th><th>problems</th>";
  for (const QuickstartStage& stage : stages) {
    table.text += printed(" %10s", stage.name.c_str());
    html += text_of("<th>", stage.name, "</th>");
  }
  table.text += "\n";
  html += "</tr>\n";
  for (const auto& [column, values] : scores[0].groups.items()) {
    for (const auto& [value, first] : values.items()) {
      const std::string kind = text_of(column, " ", value);
      const auto problems = first.at("problems").get<std::int64_t>();
      table.text += printed("  %-22s %9lld", kind.c_str(), static_cast<long long>(problems));
      html += text_of("<tr><td>", html_text(kind), "</td><td>", problems, "</td>");
      for (const StageScore& score : scores) {
        const std::string share = printed("%.1f%%", 100 * score.groups.at(column).at(value).at("value").get<double>());
        table.text += printed(" %10s", share.c_str());
        html += text_of("<td>", share, "</td>");
      }
      table.text += "\n";
      html += "</tr>\n";
    }
  }
  table.html = html + "</table>\n";
  return table;
}

// A plot with the curves of some metrics of a stage.
struct Picture {
  std::string file;  // below plots/
  std::string title;
  std::string y;
  std::vector<PlotSeries> series;
};

PlotSeries curve(std::span<const MetricRow> rows, std::string_view metric, std::string_view label) {
  MetricSeries series = metric_series(rows, metric);
  return {std::string(label), std::move(series.steps), std::move(series.values)};
}

std::vector<Picture> pictures_of(std::span<const QuickstartStage> stages) {
  std::vector<Picture> pictures;
  for (const QuickstartStage& stage : stages) {
    const std::vector<MetricRow> rows = read_metrics(stage.folder / "metrics.jsonl");
    if (stage.name != "grpo") {
      pictures.push_back({stage.name + "-loss.svg", stage.name + ": loss", "loss", {curve(rows, "loss", "loss")}});
      continue;
    }
    pictures.push_back({"grpo-rewards.svg",
                        "grpo: rewards",
                        "mean reward",
                        {curve(rows, "reward/accuracy", "accuracy"), curve(rows, "reward/format", "format"),
                         curve(rows, "reward/tag_count", "tag_count")}});
    pictures.push_back({"grpo-length.svg",
                        "grpo: length of completions",
                        "tokens",
                        {curve(rows, "completions/mean_length", "mean length")}});
  }
  return pictures;
}

}  // namespace

QuickstartReport write_quickstart_report(const std::filesystem::path& root, std::span<const QuickstartStage> stages,
                                         const QuickstartSetting& setting) {
  QuickstartReport report;
  std::string rows;
  report.text =
      "\n500 held-out problems, one sampled answer each\n"
      "  stage         accuracy   95% interval      tokens/answer   training\n";
  std::vector<StageScore> scores;
  for (const QuickstartStage& stage : stages) {
    const StageScore& score = scores.emplace_back(score_of(stage));
    report.text +=
        printed("  %-12s %7.1f%%   %5.1f to %4.1f%%   %16.1f   %8s\n", stage.name.c_str(), 100 * score.accuracy,
                100 * score.low, 100 * score.high, score.mean_tokens, format_duration(stage.seconds).c_str());
    rows += text_of("<tr><td>", stage.name,
                    printed("</td><td>%.1f%%</td><td>%.1f to %.1f%%</td><td>%.1f</td><td>", 100 * score.accuracy,
                            100 * score.low, 100 * score.high, score.mean_tokens),
                    format_duration(stage.seconds), "</td></tr>\n");
  }
  const KindsTable kinds = kinds_table(stages, scores);
  report.text += kinds.text;
  std::string figures;
  hone::create_directories(root / "plots");
  write_file(root / "report.txt", report.text);
  const bool color = is_terminal(OutputStream::kStandardOutput);
  for (const Picture& picture : pictures_of(stages)) {
    const PlotLabels labels{picture.title, "step", picture.y};
    report.text += "\n" + terminal_plot(picture.series, labels, 72, 10, color);
    const std::string svg = svg_plot(picture.series, labels);
    write_file(root / "plots" / picture.file, svg);
    figures += "<figure>" + svg + "</figure>\n";
  }
  report.html = root / "report.html";
  write_file(
      report.html,
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>hone quickstart</title>\n"
      "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#1c1e21}"
      "table{border-collapse:collapse}td,th{padding:.3rem .9rem;text-align:right;border-bottom:1px solid #d9dce1}"
      "pre{white-space:pre-wrap;background:#f4f5f7;padding:.6rem .9rem;border-radius:6px}"
      "td:first-child,th:first-child{text-align:left}figure{margin:1.5rem 0}svg{max-width:100%;height:auto}</style>\n"
      "<h1>From text to a reasoning model</h1>\n<p>500 held-out problems, one sampled answer each.</p>\n" +
          run_details_html(root, stages, setting) +
          "<table><tr><th>stage</th><th>accuracy</th><th>95% interval</th><th>tokens per "
          "answer</th><th>training</th></tr>\n" +
          rows + "</table>\n" + kinds.html + question_html(stages) + figures + "</html>\n");
  return report;
}

}  // namespace hone
