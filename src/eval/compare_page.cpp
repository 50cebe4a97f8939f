#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <string_view>

#include "core/error.h"
#include "core/strings.h"
#include "eval/compare.h"

namespace hone {
namespace {

constexpr std::size_t kLongestShown = 20'000;  // bytes of a completion that are shown

constexpr std::string_view kHead = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Evaluations compared</title>
<style>
:root { --ink: #1c2128; --soft: #636c76; --line: #d9dee4; --page: #fff; --card: #f6f8fa; --bar: #2f6feb; --good: #1a7f37;
  --bad: #cf222e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9aa4af; --line: #30363d; --page: #0d1117; --card: #161b22; --bar: #6ea8ff;
    --good: #56d364; --bad: #ff7b72; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 76rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; } p, .soft { color: var(--soft); } p { margin: .25rem 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: middle; }
th { font-weight: 600; color: var(--soft); font-size: .85rem; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.plot { width: 34%; min-width: 12rem; padding-right: 0; }
svg { display: block; width: 100%; height: 18px; }
.good { color: var(--good); } .bad { color: var(--bad); }
details { border: 1px solid var(--line); border-radius: 8px; margin: .5rem 0; background: var(--card); }
summary { cursor: pointer; padding: .5rem .75rem; } summary .soft { margin-left: .5rem; }
.sides { display: grid; gap: .75rem; padding: 0 .75rem .75rem; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); }
.side { background: var(--page); border: 1px solid var(--line); border-radius: 6px; padding: .6rem .75rem; min-width: 0; }
.prompt { margin: 0 .75rem .75rem; }
pre { margin: .4rem 0 0; white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.45 ui-monospace, monospace;
  max-height: 24rem; overflow: auto; }
</style></head><body>
)html";

template <class... Values>
std::string printed(const char* format, Values... values) {
  std::array<char, 96> text{};
  (void)std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

// Returns an SVG image of a value and its interval on an axis from `least` to `most`.
std::string plot(const Estimate& estimate, double least, double most, std::string_view zero_line) {
  const auto x = [&](double value) { return 1000.0 * (std::clamp(value, least, most) - least) / (most - least); };
  std::string svg = "<svg viewBox=\"0 0 1000 18\" preserveAspectRatio=\"none\" aria-hidden=\"true\">";
  svg += "<line x1=\"0\" y1=\"9\" x2=\"1000\" y2=\"9\" stroke=\"var(--line)\" stroke-width=\"1\"/>";
  svg += zero_line;
  if (estimate.low && estimate.high) {
    const double begin = x(*estimate.low);
    svg += printed("<rect x=\"%.1f\" y=\"6\" width=\"%.1f\" height=\"6\" fill=\"var(--bar)\" opacity=\".35\"/>", begin,
                   std::max(1.0, x(*estimate.high) - begin));
  }
  svg += printed("<rect x=\"%.1f\" y=\"2\" width=\"6\" height=\"14\" rx=\"2\" fill=\"var(--bar)\"/></svg>",
                 std::clamp(x(estimate.value) - 3, 0.0, 994.0));
  return svg;
}

std::string interval(const Estimate& estimate) {
  if (!estimate.low || !estimate.high) return "";
  return percent_text(*estimate.low) + " to " + percent_text(*estimate.high);
}

std::vector<std::string> task_names(std::span<const ComparedRun> runs) {
  std::vector<std::string> names;
  for (const ComparedRun& run : runs) {
    for (const ComparedTask& task : run.tasks) {
      if (std::ranges::find(names, task.name) == names.end()) names.push_back(task.name);
    }
  }
  return names;
}

const ComparedTask* find_task(const ComparedRun& run, const std::string& name) {
  const auto found = std::ranges::find(run.tasks, name, &ComparedTask::name);
  return found == run.tasks.end() ? nullptr : &*found;
}

std::string score_table(std::span<const ComparedRun> runs, const std::string& name) {
  std::string html =
      "<table><tr><th>run</th><th>score</th><th class=\"number\">%</th><th class=\"number\">standard error</th>"
      "<th class=\"number\">95% interval</th><th>0 to 100%</th></tr>\n";
  for (const ComparedRun& run : runs) {
    const ComparedTask* task = find_task(run, name);
    if (task == nullptr) continue;
    for (const auto& [score, estimate] : task->scores) {
      html += "<tr><td>" + (&score == &task->scores.front().name ? html_text(run.name) : std::string()) + "</td><td>" +
              html_text(score) + "</td><td class=\"number\">" + percent_text(estimate.value) +
              "</td><td class=\"number\">" +
              (estimate.standard_error ? percent_text(*estimate.standard_error) : std::string()) +
              "</td><td class=\"number\">" + interval(estimate) + "</td><td class=\"plot\">" +
              plot(estimate, 0, 1, "") + "</td></tr>\n";
    }
  }
  return html + "</table>\n";
}

std::string difference_table(std::span<const ComparedRun> runs, const std::string& name) {
  const ComparedTask* first = find_task(runs.front(), name);
  if (first == nullptr || runs.size() < 2) return "";
  std::string rows;
  for (const ComparedRun& run : runs.subspan(1)) {
    const ComparedTask* task = find_task(run, name);
    const auto paired = task == nullptr ? std::nullopt : paired_difference(*first, *task);
    if (!paired) continue;
    const Estimate& estimate = paired->estimate;
    const bool is_clear = estimate.low && estimate.high && (*estimate.low > 0 || *estimate.high < 0);
    const char* kind = !is_clear ? "" : estimate.value > 0 ? " good" : " bad";
    rows +=
        "<tr><td>" + html_text(run.name) + "</td><td class=\"number" + kind + "\">" +
        printed("%+.1f", 100 * estimate.value) + "</td><td class=\"number\">" + interval(estimate) +
        printed("</td><td class=\"number\">%lld</td><td class=\"number good\">%lld</td><td class=\"number bad\">%lld",
                static_cast<long long>(paired->problems), static_cast<long long>(paired->better),
                static_cast<long long>(paired->worse)) +
        "</td><td class=\"plot\">" +
        plot(estimate, -1, 1,
             "<line x1=\"500\" y1=\"0\" x2=\"500\" y2=\"18\" stroke=\"var(--soft)\" stroke-width=\"1\"/>") +
        "</td></tr>\n";
  }
  if (rows.empty()) return "";
  return "<h3>Difference to " + html_text(runs.front().name) +
         ", problem by problem</h3>\n<table><tr><th>run</th><th class=\"number\">points</th>"
         "<th class=\"number\">95% interval</th><th class=\"number\">problems</th><th class=\"number\">better</th>"
         "<th class=\"number\">worse</th><th>-100 to 100</th></tr>\n" +
         rows + "</table>\n";
}

std::string shortened(std::string_view text) {
  if (text.size() <= kLongestShown) return html_text(text);
  std::size_t begin = text.size() - kLongestShown;  // keep the end, which contains the answer
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) ++begin;
  return printed("[%zu bytes before]\n", begin) + html_text(text.substr(begin));
}

// Returns the HTML of the problems of all runs, ordered by the difference between the best and the worst score.
std::string samples(std::span<const ComparedRun> runs, const std::string& name, std::size_t most) {
  struct Row {
    const ComparedProblem* problem = nullptr;
    std::vector<const ComparedProblem*> answers;  // [runs]; null: the run lacks the problem
    double least = 1;
    double most = 0;
  };
  std::vector<Row> rows;
  std::map<std::string, std::size_t> places;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const ComparedTask* task = find_task(runs[r], name);
    if (task == nullptr) continue;
    for (const ComparedProblem& problem : task->problems) {
      const auto [place, is_new] =
          places.try_emplace(problem.id + '\0' + problem.gold + '\0' + problem.prompt, rows.size());
      if (is_new) rows.push_back({&problem, std::vector<const ComparedProblem*>(runs.size()), 1, 0});
      Row& row = rows[place->second];
      row.answers[r] = &problem;
      row.least = std::min(row.least, problem.score);
      row.most = std::max(row.most, problem.score);
    }
  }
  std::ranges::stable_sort(rows, std::ranges::greater(), [](const Row& row) { return row.most - row.least; });
  const std::size_t shown = std::min(most, rows.size());
  std::string html =
      text_of("<h3>Answers</h3>\n<p>", shown, " of ", rows.size(),
              " problems, those on which the runs differ most first; of each run the first sample in which they "
              "differ.</p>\n");
  for (const Row& row : std::span(rows).first(shown)) {
    const std::size_t index = sample_to_show(row.answers);
    html += text_of(&row == &rows.front() ? "<details open>" : "<details>", "<summary>problem ") +
            html_text(row.problem->id) + " <span class=\"soft\">";
    for (std::size_t r = 0; r < runs.size(); ++r) {
      if (row.answers[r] != nullptr)
        html += html_text(runs[r].name) + " " + percent_text(row.answers[r]->score) + "% &ensp;";
    }
    html += "</span></summary>\n<div class=\"prompt\"><span class=\"soft\">gold " + html_text(row.problem->gold) +
            "</span><pre>" + shortened(row.problem->prompt) + "</pre></div><div class=\"sides\">\n";
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const ComparedProblem* problem = row.answers[r];
      if (problem == nullptr) continue;
      const ComparedSample& sample = problem->samples[index];
      const std::size_t count = problem->samples.size();
      const std::string which = count > 1 ? text_of(", sample ", index + 1, " of ", count) : std::string();
      html += "<div class=\"side\"><strong>" + html_text(runs[r].name) + "</strong> <span class=\"" +
              (sample.score == 1.0 ? "good\">right" : "bad\">wrong") + "</span>" + which +
              "<div class=\"soft\">answer: " +
              (sample.extracted.empty() ? "none" : html_text(sample.extracted.substr(0, 400))) + "</div><pre>" +
              shortened(sample.completion) + "</pre></div>\n";
    }
    html += "</div></details>\n";
  }
  return html;
}

}  // namespace

std::string comparison_page(std::span<const ComparedRun> runs, std::size_t most) {
  HONE_ASSERT(!runs.empty(), "a comparison page needs at least one run");
  std::string html(kHead);
  html += "<h1>Evaluations compared</h1>\n<p>";
  for (const ComparedRun& run : runs) {
    html += html_text(run.name) + (run.model.empty() ? "" : ": " + html_text(run.model)) + "<br>";
  }
  html += "</p>\n";
  for (const std::string& name : task_names(runs)) {
    html += "<h2>" + html_text(name) + "</h2>\n" + score_table(runs, name) + difference_table(runs, name) +
            samples(runs, name, most);
  }
  return html + "</body></html>\n";
}

}  // namespace hone
