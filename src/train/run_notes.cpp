#include "train/run_notes.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "train/lora_options.h"
#include "train/resource_metrics.h"
#include "train/trainer.h"

namespace hone {
namespace {

constexpr std::size_t kMostShown = 60;  // bytes of a value in a notice

// Options that affect how a run starts, not what it computes.
constexpr std::array<std::string_view, 5> kStartOnlyKeys{"resume_from_checkpoint", "overwrite_output_dir", "output_dir",
                                                         "dry_run", "show"};

std::string value_text(const Json& value) {
  std::string text =
      value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.empty()) return "''";
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  return text;
}

}  // namespace

std::string start_line(const RunStart& start, const Model& model, DType dtype, const Device& device) {
  return text_of(start.title, ": ", start.model, " (", parameters_text(model), " in ", name_of(dtype), "), ",
                 start.data, ", ", start.work, ", ", format_bytes(start.bytes), " on ", device_text(device),
                 ", output in ", start.output_dir);
}

std::string changed_keys(const Json& before, const Json& now) {
  std::string text;
  if (!before.is_object()) return text;
  for (const auto& [key, value] : now.items()) {
    const auto old = before.find(key);
    if (old == before.end() || *old == value || std::ranges::count(kStartOnlyKeys, key) > 0) continue;
    text += text_of(text.empty() ? "" : "; ", key, " was ", value_text(*old), ", is ", value_text(value));
  }
  return text;
}

std::string finished_line(const std::string& output_dir, std::int64_t done, std::int64_t total) {
  return text_of(output_dir, ": the run is finished: ", format_count(done), " steps are done, ", format_count(total),
                 " are required; to continue increase max_steps or num_train_epochs, to start over set "
                 "overwrite_output_dir: true");
}

std::string end_line(const std::string& title, const std::string& output_dir, std::int64_t steps, double seconds,
                     std::int64_t tokens) {
  return text_of(title, ": wrote ", output_dir, " after ", format_count(steps), steps == 1 ? " step in " : " steps in ",
                 format_duration(seconds), ", ", format_count(tokens), " tokens");
}

std::string TrainingTask::idle_cause(const MetricValues&, double grad_norm) const {
  if (grad_norm != 0) return {};
  return "the gradient is 0: no token has a loss (completion_only_loss, assistant_only_loss, or completions cut off at "
         "max_length), or no weight is trained";
}

std::string IdleDetector::see(std::string_view cause) {
  steps_ = cause.empty() ? 0 : steps_ + 1;
  if (steps_ < kSteps || said_) return {};
  said_ = true;
  return text_of(steps_, " steps in a row taught nothing: ", cause);
}

}  // namespace hone
