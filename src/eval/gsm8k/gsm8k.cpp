// Grade-school word problems (openai/gsm8k): lighteval's math prompt, the gold behind "####".
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "eval/math_task.h"
#include "eval/registry.h"
#include "reward/answers.h"

namespace hone {
namespace {

EvalProblem read_row(const Json& row, const std::string& prompt_template) {
  const std::string question = column_text(row, "question");
  const std::string answer = column_text(row, "answer");
  if (question.empty() || answer.empty()) throw Error("", "gsm8k needs the columns 'question' and 'answer'");
  EvalProblem problem;
  problem.prompt = fill_problem(prompt_template, question);
  problem.gold = gold_text(answer);
  check_math_gold(problem.gold);
  return problem;
}

}  // namespace

void register_gsm8k(TaskRegistry& registry) {
  registry.add("gsm8k", [](const TaskOptions& options) {
    EvalTask task;
    task.dataset = "openai/gsm8k";
    task.dataset_config = "main";
    task.dataset_split = "test";
    const std::string prompt(options.prompt_template.empty() ? math_prompt_template() : options.prompt_template);
    task.read = [prompt](const Json& row) { return read_row(row, prompt); };
    task.judge = [strip = options.strip_thoughts](const EvalProblem& problem, std::string_view completion) {
      return judge_math(problem.gold, completion, strip);
    };
    return task;
  });
}

}  // namespace hone
