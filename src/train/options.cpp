#include "train/options.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "tracker/registry.h"
#include "train/accelerate.h"
#include "train/launch.h"

namespace hone {
namespace {

void require_text(const std::string& value, std::string_view key, std::string_view fix) {
  if (value.empty()) throw Error(key, "is not set", fix);
}

// Returns true if every evaluation has a checkpoint of the same step.
bool saves_what_it_evaluates(const TrainingOptions& options) {
  switch (options.save_strategy) {
    case SaveStrategy::kNo:
      return false;
    case SaveStrategy::kSteps:
      return options.eval_strategy == Interval::kSteps;
    case SaveStrategy::kEpoch:
      return options.eval_strategy == Interval::kEpoch;
    case SaveStrategy::kBest:
      break;
  }
  return true;
}

// Reads accelerate's YAML and logs the notices about it.
void read_launch_file(const ModelOptions& model, const TrainingOptions& training) {
  OptionInput read;
  const AccelerateOptions options = read_accelerate(training.config_file, read);
  for (const std::string& line : notice_lines(read.notices)) log_once(text_of(training.config_file, ": ", line));
  for (const std::string& line : accelerate_notices(options, training.config_file, model, training)) log_once(line);
}

// Logs the options of trackers that have no effect because report_to does not name the tracker.
void check_trackers(const TrainingOptions& training, const OptionInput& input) {
  const std::vector<std::string> names = tracker_names(training.report_to, input.place_of("report_to"));
  OptionSet keys = training.keys_of_trackers;
  const Json values = option_json(OptionTable(keys));
  for (const TrackerEntry& tracker : tracker_registry().entries()) {
    if (std::ranges::count(names, tracker.name) > 0) continue;
    OptionSet unset = tracker.keys;
    const Json defaults = option_json(OptionTable(unset));
    for (const auto& [key, value] : defaults.items()) {
      if (values.at(key) != value) log_once(text_of(key, " has no effect: report_to does not name ", tracker.name));
    }
  }
}

// Throws Error if a key divides the model, which the search of a layout does.
void check_layout(const TrainingOptions& training, const OptionInput& input) {
  if (training.layout == LayoutChoice::kKeys) return;
  const std::optional<std::string> key = layout_key_set(training, input);
  if (!key) return;
  const std::string set =
      input.was_set(*key) ? text_of(*key, " is set") : text_of(training.config_file, " sets ", *key);
  throw Error(input.place_of("layout"), text_of("is ", name_of(training.layout), ", but ", set),
              "remove one of the two");
}

void check_steps(double value, std::string_view key, const OptionInput& input) {
  if (value < 1 || value == std::floor(value)) return;
  throw Error(input.place_of(key), text_of("expected a whole number of steps or a share below 1, saw ", value));
}

}  // namespace

void check_training(const ModelOptions& model, const DatasetOptions& data, const TrainingOptions& training,
                    bool needs_model, const OptionInput& input) {
  if (needs_model) require_text(model.model_name_or_path, "model_name_or_path", "the folder of the model to train");
  if (!training.plan.asked) {
    if (data.dataset_mixture.kind == YamlValue::Kind::kNull) {
      require_text(data.dataset_name, "dataset_name", "the file or folder of the data to train on");
    }
    require_text(training.output_dir, "output_dir", "the folder for checkpoints and the final model");
  }
  if (!training.config_file.empty()) read_launch_file(model, training);
  check_trackers(training, input);
  check_fp8(training.fp8, training.tensor_parallel_size, input);
  check_hub_options(training.hub, training.output_dir, input);
  check_layout(training, input);
  check_steps(training.logging_steps, "logging_steps", input);
  check_steps(training.save_steps, "save_steps", input);
  if (training.eval_steps) check_steps(*training.eval_steps, "eval_steps", input);
  if (training.save_strategy == SaveStrategy::kBest && training.eval_strategy == Interval::kNo) {
    throw Error(input.place_of("save_strategy"), "is best, but eval_strategy is no: there is nothing to compare",
                "set eval_strategy to steps or epoch");
  }
  if (training.load_best_model_at_end && !saves_what_it_evaluates(training)) {
    throw Error(input.place_of("load_best_model_at_end"),
                text_of("each evaluation needs its checkpoint, but eval_strategy is ", name_of(training.eval_strategy),
                        " and save_strategy ", name_of(training.save_strategy)),
                "set both to steps or both to epoch, or save_strategy to best");
  }
  if (training.max_steps == 0) {
    throw Error(input.place_of("max_steps"), "saw 0, which leaves nothing to train", "-1 trains num_train_epochs");
  }
  if (model.bf16 == true && model.torch_dtype == TorchDtype::kFloat32) {
    throw Error(input.place_of("bf16"), "f32 weights with bfloat16 GEMMs are not implemented yet",
                "set torch_dtype: bfloat16, or bf16: false");
  }
  if (training.activation_memory_gib && training.gradient_checkpointing != Recomputation::kAutomatic) {
    throw Error(
        input.place_of("activation_memory_gib"),
        text_of("gradient_checkpointing ", name_of(training.gradient_checkpointing), " leaves nothing to choose"),
        "set gradient_checkpointing: auto");
  }
}

void check_options(const PretrainOptions& options, const OptionInput& input) {
  check_training(options, options, options, false, input);
  if (options.model_name_or_path.empty() == options.model_config_path.empty()) {
    throw Error("model_config_path",
                options.model_config_path.empty() ? "neither it nor model_name_or_path is set"
                                                  : "both it and model_name_or_path are set",
                "a config.json starts from scratch, the folder of a model continues from its weights");
  }
  if (!options.config_overrides.empty() && options.model_config_path.empty()) {
    throw Error(input.place_of("config_overrides"), "is set, but existing weights have fixed shapes",
                "use it with model_config_path");
  }
  if (!options.model_config_path.empty() && !options.plan.asked) {
    require_text(options.tokenizer_name_or_path, "tokenizer_name_or_path", "the folder of the tokenizer to train with");
  }
}

void check_options(const SftOptions& options, const OptionInput& input) {
  check_training(options, options, options, true, input);
  check_lora(options, input);
  if (options.fp8.fp8 && options.use_peft) {
    throw Error(input.place_of("fp8"), "trains all weights, but use_peft trains adapters only",
                "remove one of the two");
  }
  if (options.dataset_kwargs.skip_prepare_dataset && (options.packing || options.eval_packing == true)) {
    throw Error(input.place_of("dataset_kwargs.skip_prepare_dataset"),
                text_of("leaves the rows as they are, but ", options.packing ? "packing" : "eval_packing", " is true"),
                "set one of the two to false");
  }
  const bool packs = options.packing || options.eval_packing == true;
  if (packs && !options.max_length) {
    throw Error(input.place_of(options.packing ? "packing" : "eval_packing"), "packing needs a max_length, saw null",
                "set max_length, for example 4096");
  }
}

std::optional<DType> weight_dtype(const ModelOptions& options) {
  if (options.torch_dtype == TorchDtype::kBfloat16 || options.bf16 == true) return DType::kBf16;
  if (options.torch_dtype == TorchDtype::kFloat32) return DType::kF32;
  return std::nullopt;
}

std::int64_t interval_steps(double value, std::int64_t total_steps) {
  const double steps = value < 1 ? std::ceil(static_cast<double>(total_steps) * value) : value;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(steps));
}

Schedule make_schedule(const TrainingOptions& options, std::int64_t total_steps) {
  return Schedule({.type = options.lr_scheduler_type,
                   .learning_rate = options.learning_rate,
                   .total_steps = total_steps,
                   .warmup_steps = warmup_steps_of(total_steps, options.warmup_steps, options.warmup_ratio),
                   .kwargs = options.lr_scheduler_kwargs});
}

}  // namespace hone
