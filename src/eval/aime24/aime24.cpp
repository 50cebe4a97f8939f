// Task aime24: American Invitational Mathematics Examination of 2024 (HuggingFaceH4/aime_2024).
#include "eval/math_task.h"
#include "eval/registry.h"

namespace hone {

void register_aime24(TaskRegistry& registry) {
  registry.add("aime24",
               [](const TaskOptions& options) {
                 EvalTask task = make_math_task(options, {.problem = "problem", .gold = "answer", .id = "id"});
                 task.dataset = "HuggingFaceH4/aime_2024";
                 task.dataset_split = "train";
                 task.samples = 64;
                 return task;
               },
               {"aime_2024"});
}

}  // namespace hone
