// Task gsm8k: grade-school word problems (openai/gsm8k) with the math prompt of lighteval. The gold answer follows
// "####".
#include "eval/math_task.h"
#include "eval/registry.h"

namespace hone {

void register_gsm8k(TaskRegistry& registry) {
  registry.add("gsm8k", [](const TaskOptions& options) {
    EvalTask task = make_math_task(options, {.problem = "question", .gold = "answer"});
    task.dataset = "openai/gsm8k";
    task.dataset_config = "main";
    task.dataset_split = "test";
    return task;
  });
}

}  // namespace hone
