#include "planner/auto_layout.h"

#include <optional>
#include <string>

#include "checkpoint/training_state.h"
#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/printed.h"
#include "core/strings.h"
#include "planner/layout_search.h"
#include "train/launch.h"

namespace hone {
namespace {

// A layout and why it was chosen.
struct ChosenLayout {
  Layout layout;
  std::string reason;
};

// Returns the checkpoint that the run resumes from (train/run_checkpoints.h).
std::optional<std::string> resumed_checkpoint(const TrainingOptions& options) {
  const std::string& from = options.resume_from_checkpoint;
  if (from == "false" || (from.empty() && options.overwrite_output_dir)) return std::nullopt;
  if (!from.empty() && from != "true") return from;
  const std::optional<CheckpointFolder> last = last_good_checkpoint(options.output_dir);
  return last ? std::optional(last->path.string()) : std::nullopt;
}

// The checkpoint that a run resumes from, and its layout.
struct SavedLayout {
  std::string checkpoint;
  Layout layout;
  std::int64_t processes = 1;
};

std::optional<SavedLayout> saved_layout(const TrainingOptions& options) {
  const std::optional<std::string> checkpoint = resumed_checkpoint(options);
  if (!checkpoint) return std::nullopt;
  const Json saved = TrainingState(*checkpoint).json().value("options", Json::object());
  const auto processes = saved.find("num_processes");
  const bool known = processes != saved.end() && processes->is_number_integer();
  return SavedLayout{*checkpoint, layout_from_json(saved), known ? processes->get<std::int64_t>() : 1};
}

// batch_size: that of the checkpoint that the run resumes from, whose place in the data counts in batches.
template <class Options>
ChosenLayout first_layout(const Options& options, const OptionInput& input, const ModelSketch& sketch,
                          std::optional<std::int64_t> batch_size) {
  LayoutProblem problem = layout_problem(options, input, sketch, job_devices(options));
  problem.batch_size = batch_size;
  const LayoutRanking ranking = rank_layouts(problem);
  const LayoutPlan& first = ranking.layouts[0];
  const std::string next =
      ranking.layouts.size() > 1
          ? printed("; the next, %s, takes %.1f%% longer", to_text(ranking.layouts[1].layout).c_str(),
                    100 * (ranking.layouts[1].time.total() / first.time.total() - 1))
          : "";
  return {first.layout,
          text_of("the fastest of ", ranking.allowed, " on ", problem.device.name, " with ", format_bytes(first.bytes),
                  " each, ", printed("%.0f tokens/s a process", tokens_per_second(problem, first)), " by ",
                  reason_of(first.time), next)};
}

// Returns the layout that rank 0 chooses. Logs why a checkpoint's layout is not kept.
template <class Options>
ChosenLayout chosen_layout(const Options& options, const OptionInput& input,
                           const std::function<ModelSketch()>& sketch) {
  const std::optional<SavedLayout> saved = saved_layout(options);
  if (!saved) return first_layout(options, input, sketch(), std::nullopt);
  if (saved->processes != options.processes()) {
    log_info(text_of("layout: ", saved->checkpoint, " is of ", saved->processes, " processes, this run has ",
                     options.processes(), ", so that another layout is searched"));
  } else if (options.layout == LayoutChoice::kAutomatic) {
    return {saved->layout, text_of("that of ", saved->checkpoint)};
  }
  return first_layout(options, input, sketch(), saved->layout.per_device_train_batch_size);
}

template <class Options>
void choose(const Job& job, Options& options, const OptionInput& input, const std::function<ModelSketch()>& sketch) {
  if (options.layout == LayoutChoice::kKeys) return;
  agree_on_memory(job, options, open_device(options.device));
  std::string text;
  if (job.is_first()) {
    const ChosenLayout chosen = chosen_layout(options, input, sketch);
    log_info(text_of("layout: ", to_text(chosen.layout), " (", chosen.reason, ")"));
    text = to_json(chosen.layout).dump();
  }
  apply(layout_from_json(parse_json(job.broadcast(text), "layout")), options);
}

}  // namespace

void choose_layout(const Job& job, PretrainOptions& options, const OptionInput& input,
                   const std::function<ModelSketch()>& sketch) {
  choose(job, options, input, sketch);
}

void choose_layout(const Job& job, SftOptions& options, const OptionInput& input,
                   const std::function<ModelSketch()>& sketch) {
  choose(job, options, input, sketch);
}

}  // namespace hone
