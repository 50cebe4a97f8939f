#include "planner/dry_run.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <set>

#include "checkpoint/training_state.h"
#include "core/error.h"
#include "core/strings.h"
#include "model/weights.h"
#include "train/memory_fit.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

// Throws Error if the output folder neither exists nor can be created, or is not writable.
void check_output(const std::string& output_dir) {
  std::error_code error;
  fs::path path = fs::absolute(output_dir, error);
  while (!fs::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  if (!fs::is_directory(path, error)) {
    throw Error("output_dir",
                text_of("cannot create the folder ", output_dir, ": ", path.string(), " is not a folder"));
  }
  if (::access(path.c_str(), W_OK) != 0) {
    throw Error("output_dir", text_of("cannot write into ", path.string()), "choose a folder with write permission");
  }
}

std::string rate_line(const Schedule& schedule, std::int64_t step) {
  std::array<char, 80> line{};
  std::snprintf(line.data(), line.size(), "  step %-23s %16.4g\n", format_count(step).c_str(), schedule.rate(step - 1));
  return line.data();
}

// The learning rate at the first step, at the end of the warm-up, at each quarter of the run and at the last step.
std::string schedule_text(const TrainingOptions& options, std::int64_t total) {
  const Schedule schedule = make_schedule(options, total);
  const std::int64_t warmup = warmup_steps_of(total, options.warmup_steps, options.warmup_ratio);
  std::string text =
      text_of("learning_rate, ", name_of(options.lr_scheduler_type), ", ", format_count(warmup), " steps of warm-up\n");
  const std::set<std::int64_t> steps{1, warmup + 1, total / 4, total / 2, total * 3 / 4, total};
  for (const std::int64_t step : steps) {
    if (step >= 1 && step <= total) text += rate_line(schedule, step);
  }
  return text;
}

// Describes the checkpoint that the run would resume from.
std::string start_text(const TrainingOptions& options) {
  const std::string& from = options.resume_from_checkpoint;
  if (!from.empty() && from != "true" && from != "false") {
    return text_of("resumes from ", from, " after step ", format_count(TrainingState(from).step()), "\n");
  }
  if (from == "false" || (from.empty() && options.overwrite_output_dir)) return "starts from scratch\n";
  const std::optional<CheckpointFolder> last = last_good_checkpoint(options.output_dir);
  if (last) return text_of("resumes from ", last->path.string(), " after step ", format_count(last->step), "\n");
  if (from == "true") {
    throw Error("resume_from_checkpoint", text_of("there is no checkpoint in ", options.output_dir));
  }
  return "starts from scratch\n";
}

template <class Run>
int print_run(const Run& run, std::string_view data) {
  check_output(run.options.output_dir);
  const std::string start = start_text(run.options);
  const RunPlan plan = plan_run(run);
  std::fputs(to_text(plan).c_str(), stdout);
  std::fputs(schedule_text(run.options, run.total_steps).c_str(), stdout);
  std::fputs(text_of(data, start).c_str(), stdout);
  const Device& device = open_device(run.options.device);
  check_fits(run.options, run.dtype, device, plan.memory.total() + run.benchmark_bytes_held, bytes_of(run));
  std::fputs("dry run: nothing was trained, nothing was written\n", stdout);
  return 0;
}

}  // namespace

int print_dry_run(const LanguageRun& run) {
  if (run.initial != nullptr) check_weights(*run.model, *run.initial, Vocabulary::kMayGrow);
  const auto count = [](const std::unique_ptr<BatchLoader>& loader) {
    return loader == nullptr ? std::string("none") : format_count(loader->batches_per_epoch());
  };
  return print_run(
      run, text_of("batches per epoch ", count(run.batches), ", per evaluation ", count(run.eval_batches), "\n"));
}

int print_dry_run(const GrpoRun& run) {
  check_weights(*run.model, *run.initial);
  return print_run(run,
                   text_of("prompts ", format_count(run.prompts.size()), ", for evaluation ",
                           run.eval_prompts ? format_count(run.eval_prompts->size()) : "none", "; a generation is ",
                           run.batch.prompts, " x ", run.options.num_generations, " completions\n"));
}

}  // namespace hone
