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
#include "train/run_checkpoints.h"

namespace hone {
namespace {

// A layout and why it was chosen.
struct ChosenLayout {
  Layout layout;
  std::string reason;
};

// The checkpoint that a run resumes from, and the options that it has saved.
struct SavedRun {
  std::string checkpoint;
  Json options;

  // Returns a number of the options; nullopt if a checkpoint of an earlier hone has none.
  [[nodiscard]] std::optional<std::int64_t> number(const char* key) const {
    const auto found = options.find(key);
    if (found == options.end() || !found->is_number_integer()) return std::nullopt;
    return found->get<std::int64_t>();
  }
};

std::optional<SavedRun> saved_run(const TrainingOptions& options) {
  const std::optional<CheckpointFolder> checkpoint = checkpoint_to_resume(options);
  if (!checkpoint) return std::nullopt;
  return SavedRun{checkpoint->path.string(), TrainingState(checkpoint->path).json().value("options", Json::object())};
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
  const std::optional<SavedRun> saved = saved_run(options);
  if (!saved) return first_layout(options, input, sketch(), std::nullopt);
  const std::int64_t processes = saved->number("num_processes").value_or(1);
  if (processes != options.processes()) {
    log_info(text_of("layout: ", saved->checkpoint, " is of ", processes, " processes, this run has ",
                     options.processes(), ", so that another layout is searched"));
  } else if (options.layout == LayoutChoice::kAutomatic) {
    return {layout_from_json(saved->options), text_of("that of ", saved->checkpoint)};
  }
  return first_layout(options, input, sketch(), saved->number("per_device_train_batch_size"));
}

template <class Options>
void choose(const Job& job, Options& options, const OptionInput& input, const std::function<ModelSketch()>& sketch) {
  // Also with keys, so that a rank with other options is named.
  agree(job, options, option_json(OptionTable(options)).dump(), open_device(options.device));
  if (options.layout == LayoutChoice::kKeys) return;
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
