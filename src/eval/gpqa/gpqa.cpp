// Task gpqa:diamond: graduate-level multiple-choice questions (Idavidrein/gpqa) with the prompt of lighteval.
#include <array>
#include <memory>

#include "core/characters.h"
#include "core/error.h"
#include "core/json_value.h"
#include "eval/gpqa/letters.h"
#include "eval/gpqa/python_random.h"
#include "eval/math_task.h"
#include "eval/registry.h"
#include "reward/tags.h"

namespace hone {
namespace {

constexpr std::string_view kPrompt =
    "Answer the following multiple choice question. The last line of your response should be of the following format: "
    "'Answer: $LETTER' (without quotes) where LETTER is one of ABCD. Think step by step before answering.\n\n"
    "{Question}\n\nA) {A}\nB) {B}\nC) {C}\nD) {D}";

constexpr std::array<const char*, 4> kColumns = {"Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3",
                                                 "Correct Answer"};

// Reads a problem. `place` is the index of the correct answer among the four choices.
EvalProblem read_row(const Json& row, const std::string& prompt_template, std::size_t place) {
  EvalProblem problem;
  problem.id = column_text(row, "Record ID");
  Json columns = row;
  if (column_text(row, "Question").empty()) throw Error("", "gpqa needs the column 'Question'");
  std::vector<std::string> choices;
  for (const char* column : kColumns) {
    std::string text = column_text(row, column);
    if (text.empty()) throw Error("", text_of("gpqa needs the column '", column, "'"));
    const std::size_t at = column == kColumns.back() ? place : choices.size();
    choices.insert(choices.begin() + static_cast<std::ptrdiff_t>(at), std::move(text));
  }
  for (std::size_t i = 0; i < choices.size(); ++i) columns[std::string(1, static_cast<char>('A' + i))] = choices[i];
  problem.prompt = fill_template(prompt_template, columns);
  problem.gold = std::string(1, static_cast<char>('A' + place));
  return problem;
}

}  // namespace

void register_gpqa(TaskRegistry& registry) {
  registry.add(
      "gpqa:diamond",
      [](const TaskOptions& options) {
        EvalTask task;
        task.dataset = "Idavidrein/gpqa";
        task.dataset_config = "gpqa_diamond";
        task.dataset_split = "train";
        task.samples = 8;
        const std::string prompt(options.prompt_template.empty() ? kPrompt : options.prompt_template);
        // One draw per row, in order, like random.randint(0, 3) in lighteval. With seed 1234 the order of the choices
        // is the same as in lighteval.
        const auto places = std::make_shared<PythonRandom>(options.seed);
        task.read = [prompt, places](const Json& row) { return read_row(row, prompt, places->up_to(3)); };
        task.judge = [strip = options.strip_thoughts](const EvalProblem& problem, std::string_view completion) {
          const std::optional<char> letter = chosen_letter(strip ? without_thoughts(completion) : completion);
          return letter ? Judgement{std::string(1, *letter), problem.gold == std::string_view(&*letter, 1) ? 1.0 : 0.0}
                        : Judgement{};
        };
        return task;
      },
      {"gpqa", "gpqa_diamond"});
}

}  // namespace hone
