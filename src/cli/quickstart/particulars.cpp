#include "cli/quickstart/particulars.h"

#include <algorithm>
#include <vector>

#include "backend/measured_rates.h"
#include "cli/bench/results.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/parallel.h"
#include "core/strings.h"
#include "eval/compare.h"
#include "model/registry.h"
#include "model/weights.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

// Describes the device: a GPU by its name, the CPU by its number of threads and its name.
std::string machine_text(const std::string& device) {
  return device == "cpu" ? text_of(thread_count(), " threads of ", processor_name()) : device;
}

// Number of lines of a file as text, or "no" if it does not exist.
std::string rows_of(const fs::path& file) {
  return is_file(file) ? format_count(std::ranges::count(read_file(file), '\n')) : "no";
}

std::string parameters_of(const fs::path& folder) {
  return format_count(parameter_count(*family_registry().create(read_json(folder / "config.json"))));
}

// Returns the first sample of each run for a question. The result is shorter than `runs` if some run did not have it.
std::vector<const ComparedSample*> answers_to(const ComparedProblem& question, std::span<const ComparedRun> runs) {
  std::vector<const ComparedSample*> answers;
  for (const ComparedRun& run : runs) {
    if (run.tasks.empty()) continue;
    const auto& problems = run.tasks.front().problems;
    const auto same = std::ranges::find_if(problems, [&](const ComparedProblem& problem) {
      return problem.id == question.id && problem.prompt == question.prompt;
    });
    if (same != problems.end() && !same->samples.empty()) answers.push_back(&same->samples.front());
  }
  return answers;
}

}  // namespace

std::string run_details_html(const fs::path& root, std::span<const QuickstartStage> stages,
                             const QuickstartSetting& setting) {
  const fs::path data = root / "data";
  return text_of("<ul><li>", utc_now(), ", on ", html_text(machine_text(setting.machine)), "</li>\n<li>seed ",
                 setting.seed, "</li>\n<li>a model of ", parameters_of(stages.back().folder), " parameters</li>\n<li>",
                 rows_of(data / "corpus.jsonl"), " documents to pre-train on, ", rows_of(data / "sft.jsonl"),
                 " traces for supervised fine-tuning, ", rows_of(data / "prompts.jsonl"), " prompts for GRPO, ",
                 rows_of(data / "held_out.jsonl"), " held-out problems</li></ul>\n");
}

std::string question_html(std::span<const QuickstartStage> stages) {
  std::vector<std::string> folders;
  for (const QuickstartStage& stage : stages) folders.push_back(stage.results.string());
  const std::vector<ComparedRun> runs = read_runs(folders);
  const ComparedProblem* shown_one = nullptr;
  std::vector<const ComparedSample*> answers;
  int best = -1;
  for (const ComparedProblem& question : runs.front().tasks.front().problems) {
    std::vector<const ComparedSample*> these = answers_to(question, runs);
    if (these.size() != stages.size()) continue;
    // The last stage being right counts more than the first one being wrong.
    const int rank = (these.back()->score == 1 ? 2 : 0) + (these.front()->score == 1 ? 0 : 1);
    if (rank <= best) continue;
    best = rank;
    shown_one = &question;
    answers = std::move(these);
  }
  if (shown_one == nullptr) return {};
  std::string html =
      text_of("<h2>One question, answered by every stage</h2>\n<p>Held-out problem ", html_text(shown_one->id), ": <b>",
              html_text(shown_one->prompt), "</b> The answer is ", html_text(shown_one->gold), ".</p>\n");
  for (std::size_t i = 0; i < stages.size(); ++i) {
    html += text_of("<p>", stages[i].name, ": ", answers[i]->score == 1 ? "right" : "wrong", "</p>\n<pre>",
                    html_text(answers[i]->completion), "</pre>\n");
  }
  return html;
}

}  // namespace hone
