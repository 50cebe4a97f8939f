// Task math_500: 500 problems of MATH (HuggingFaceH4/MATH-500). The gold answer is extracted from the solution, as in
// lighteval.
#include "eval/math_task.h"
#include "eval/registry.h"

namespace hone {

void register_math_500(TaskRegistry& registry) {
  registry.add("math_500", [](const TaskOptions& options) {
    EvalTask task = make_math_task(options, {.problem = "problem", .gold = "solution", .id = "unique_id"});
    task.dataset = "HuggingFaceH4/MATH-500";
    task.dataset_split = "test";
    task.samples = 4;
    return task;
  });
}

}  // namespace hone
