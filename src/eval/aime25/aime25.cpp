// Task aime25: American Invitational Mathematics Examination of 2025 (yentinglin/aime_2025).
#include "eval/math_task.h"
#include "eval/registry.h"

namespace hone {

void register_aime25(TaskRegistry& registry) {
  registry.add("aime25",
               [](const TaskOptions& options) {
                 EvalTask task = make_math_task(options, {.problem = "problem", .gold = "answer", .id = "id"});
                 task.dataset = "yentinglin/aime_2025";
                 task.dataset_split = "train";
                 task.samples = 64;
                 return task;
               },
               {"aime_2025"});
}

}  // namespace hone
