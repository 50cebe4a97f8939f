#include "cli/bench/page.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::string_view kHead = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Benchmarks</title>
<style>
:root { color-scheme: light dark; --ink: #1d1e20; --soft: #63666b; --line: #e2e2de; --page: #fcfcfb; --bad: #a3302a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e5e7; --soft: #9a9ea4; --line: #303337; --page: #17181a; --bad: #f0938c; } }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 60rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .2rem; }
code { font: .84rem ui-monospace, monospace; color: var(--soft); overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin-top: .6rem; }
th, td { text-align: left; padding: .25rem 1rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; font-size: .85rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.failed { color: var(--bad); }
</style></head><body>
<h1>Benchmarks</h1>
)html";

// A number with four digits that count.
std::string page_figure(double value) {
  if (std::abs(value) >= 1000 && std::abs(value) < 1e15) return format_count(std::llround(value));
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

std::string part_html(const BenchPart& part) {
  std::string html = text_of("<h2>", html_text(part.name), "</h2>\n<code>", html_text(part.command), "</code>\n");
  if (!part.failure.empty()) return html + text_of("<p class=\"failed\">", html_text(part.failure), "</p>\n");
  html +=
      "<div class=\"wide\"><table><tr><th>what</th><th>shape</th><th class=\"number\">figure</th><th>unit</th></tr>\n";
  for (const Json& row : part.rows) {
    html += text_of("<tr><td>", html_text(row["what"].get<std::string>()), "</td><td>",
                    html_text(row["shape"].get<std::string>()), "</td><td class=\"number\">",
                    page_figure(row["figure"].get<double>()), "</td><td>", html_text(row["unit"].get<std::string>()),
                    "</td></tr>\n");
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string bench_page(const BenchPage& page) {
  std::string html(kHead);
  html += "<table>\n";
  for (const auto& [name, value] : page.machine) {
    html += text_of("<tr><th>", html_text(name), "</th><td>", html_text(value), "</td></tr>\n");
  }
  html += "</table>\n";
  for (const BenchPart& part : page.parts) html += part_html(part);
  return html + "</body></html>\n";
}

}  // namespace hone
