#include "train/run_checkpoints.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "checkpoint/training_state.h"
#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "model/adapter_files.h"
#include "model/expert_parallel_model.h"
#include "model/state_tensors.h"
#include "model/tensor_parallel_model.h"
#include "model/weight_layout.h"
#include "model/weights.h"
#include "train/rank_tensors.h"
#include "train/run_notes.h"
#include "train/setup.h"
#include "train/task_snapshot.h"
#include "train/whole_weights.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

// Writes a model folder or an adapter folder. Checkpoints are such folders too, so that they can be evaluated and used
// in chats.
void write_model_folder(const fs::path& path, const TrainingSubject& subject, const TensorStore& weights) {
  const Json generation_config = parse_json(subject.generation_config, "generation_config.json");
  if (const LoraModel* lora = subject.model.whole().adapter()) {
    save_adapter(path, *lora, weights, &generation_config);
  } else {
    save_model(path, subject.model.whole(), weights, &generation_config);
  }
  subject.tokenizer.save(path);
}

// Prefix of the names of a task's tensors in the training state.
constexpr std::string_view kTaskPrefix = "task.";

std::vector<TensorSource> sources_of(const std::vector<TaskTensor>& tensors) {
  std::vector<TensorSource> sources;
  sources.reserve(tensors.size());
  for (const TaskTensor& tensor : tensors) {
    sources.push_back(tensor_source(std::string(kTaskPrefix) + tensor.name, tensor.dtype, tensor.shape,
                                    std::span<const std::byte>(*tensor.bytes)));
  }
  return sources;
}

std::vector<TaskTensor> task_tensors(const WeightFiles& files) {
  std::vector<TaskTensor> tensors;
  for (const std::string& name : files.names()) {
    if (!name.starts_with(kTaskPrefix)) continue;
    const StoredTensor& stored = files.at(name);
    HONE_ASSERT(stored.type == StoredType::kI32 || stored.type == StoredType::kF32, "the type of ", name);
    const auto dtype = stored.type == StoredType::kI32 ? DType::kI32 : DType::kF32;
    auto bytes =
        std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(stored.element_count()) * size_of(dtype));
    read_as(stored, dtype, *bytes);
    tensors.push_back({name.substr(kTaskPrefix.size()), dtype, stored.shape, std::move(bytes)});
  }
  return tensors;
}

// Returns true if the 8-bit states of what ranks of such groups have are those of whole weights, in any other division.
bool has_states_of_whole(const Model& whole, int tensor_size, int expert_size) {
  return std::ranges::all_of(whole.weights(), [&](const WeightSpec& spec) {
    const WeightSpec part = expert_spec(part_spec(spec, 0, tensor_size), 0, expert_size);
    const auto elements = [](const WeightSpec& of) { return of.shape[0] * row_elements(of); };
    if (!spec.trainable || !is_divided(part) || elements(spec) < kMin8BitElements) return true;
    return elements(part) >= kMin8BitElements && has_whole_state_blocks(part);
  });
}

}  // namespace

std::optional<CheckpointFolder> checkpoint_to_resume(const TrainingOptions& options) {
  const std::string& from = options.resume_from_checkpoint;
  if (from == "false") return std::nullopt;
  if (!from.empty() && from != "true") return CheckpointFolder{TrainingState(from).step(), from};
  std::optional<CheckpointFolder> checkpoint;
  if (!from.empty() || !options.overwrite_output_dir) checkpoint = last_good_checkpoint(options.output_dir);
  if (!checkpoint && from == "true") {
    throw Error("resume_from_checkpoint", text_of("there is no checkpoint in ", options.output_dir));
  }
  return checkpoint;
}

RunCheckpoints::RunCheckpoints(const TrainingOptions& options, const TrainerSetup& setup, TrainingSubject& subject)
    : options_(options),
      setup_(setup),
      subject_(subject),
      output_dir_(options.output_dir),
      store_(setup.job.is_first() ? std::make_unique<CheckpointStore>(output_dir_) : nullptr),
      options_json_(std::make_unique<const Json>(parse_json(setup.options, "options"))) {}

RunCheckpoints::~RunCheckpoints() = default;

fs::path RunCheckpoints::folder_of(std::int64_t step) const { return output_dir_ / text_of("checkpoint-", step); }

void RunCheckpoints::load_model(const fs::path& checkpoint) {
  if (const LoraModel* lora = subject_.model.whole().adapter()) {
    if (has_parts()) return held_weights().load_adapter(checkpoint, subject_.weights);
    return load_adapter(checkpoint, *lora, subject_.weights);
  }
  if (is_adapter_folder(checkpoint)) {
    throw Error(checkpoint.string(), "holds an adapter, and use_peft is not set",
                "set use_peft, or another output_dir");
  }
  const ModelDirectory directory(checkpoint);
  const DType dtype = model_dtype(subject_.model, subject_.weights);
  if (has_parts()) return held_weights().load(directory, Vocabulary::kAsStored, subject_.weights);
  subject_.weights.copy_from(load_weights(subject_.model, directory, dtype, subject_.weights.device()));
}

bool RunCheckpoints::has_parts() const {
  return subject_.optimizer.has_divided_weights() || &subject_.model.whole() != &subject_.model;
}

HeldWeights RunCheckpoints::held_weights() const {
  return {subject_.optimizer.shards(), subject_.optimizer.has_divided_weights(), setup_.job.data_rank()};
}

template <class Write>
void RunCheckpoints::with_weights(const Write& write) const {
  if (!has_parts()) return write(subject_.weights);
  const TensorStore whole = held_weights().assemble(subject_.weights, setup_.job);
  write(whole);
}

Json RunCheckpoints::load(const fs::path& checkpoint, TrainingTask& task) {
  const TrainingState state(checkpoint);
  if (state.json().value("model_only", false)) {
    throw Error(checkpoint.string(), "holds the model alone: it was saved with save_only_model and cannot be resumed",
                "name it as model_name_or_path, with another output_dir");
  }
  if (const std::string command = state.json().value("command", setup_.command); command != setup_.command) {
    throw Error(checkpoint.string(), text_of("is a checkpoint of hone ", command, ", not of hone ", setup_.command),
                "name it as model_name_or_path, with another output_dir");
  }
  if (&subject_.model.whole() != &subject_.model && state.format() != kStateFormat) {
    const char* const key = setup_.job.tensor_size() > 1     ? "tensor_parallel_size"
                            : setup_.job.pipeline_size() > 1 ? "pipeline_parallel_size"
                                                             : "expert_parallel_size";
    throw Error(checkpoint.string(),
                text_of("is a checkpoint of an earlier version of hone, which ", key, " cannot continue"),
                text_of("--", key, " 1 until the next checkpoint"));
  }
  if (optimizer_options(options_).moments == MomentFormat::kInt8) check_state_blocks(checkpoint, state.json());
  load_model(checkpoint);
  const StateLayout layout(subject_.model.weights(),
                           state.format() == kStateFormat ? StateNames::kParts : StateNames::kBlocks,
                           subject_.optimizer.held_rows());
  const PiecedTensors tensors(state.tensors().files());
  for (const auto& [prefix, store] : subject_.optimizer.workspace().saved_stores()) {
    load_states(layout, tensors, prefix, *store);
  }
  subject_.optimizer.set_steps(state.json().at("optimizer_steps").get<std::int64_t>());
  if (const auto best = state.json().find("best"); best != state.json().end() && options_.compares_evaluations()) {
    best_ = Best{best->at("step").get<std::int64_t>(), best->at("value").get<double>()};
  }
  task.restore(state.json().at("task"), task_tensors(state.tensors()));
  return state.json().value("options", Json());
}

void RunCheckpoints::check_state_blocks(const fs::path& checkpoint, const Json& state) const {
  const Json before = state.value("options", Json::object());
  const auto size_before = [&](const char* key) { return static_cast<int>(before.value(key, std::int64_t{1})); };
  const int tensor = size_before("tensor_parallel_size");
  const int experts = size_before("expert_parallel_size");
  const Job& job = setup_.job;
  if (tensor == job.tensor_size() && experts == job.expert_size()) return;
  const Model& whole = subject_.model.whole();
  if (has_states_of_whole(whole, tensor, experts) && has_states_of_whole(whole, job.tensor_size(), job.expert_size())) {
    return;
  }
  throw Error(checkpoint.string(),
              text_of("holds states of optim ", name_of(options_.optim), " for tensor_parallel_size ", tensor,
                      " and expert_parallel_size ", experts, ", whose blocks are not those of this run's parts"),
              text_of("--tensor_parallel_size ", tensor, " --expert_parallel_size ", experts));
}

std::int64_t RunCheckpoints::resume(TrainingTask& task) {
  // Rank 0 chooses the checkpoint, because what the folder holds may change while the others look.
  std::string folder;
  if (setup_.job.is_first()) {
    const std::optional<CheckpointFolder> chosen = checkpoint_to_resume(options_);
    if (chosen) folder = chosen->path.string();
  }
  folder = setup_.job.broadcast(folder);
  replaces_ = folder.empty() && options_.overwrite_output_dir;
  if (folder.empty()) return 0;
  const std::int64_t step = TrainingState(folder).step();
  const Json before = load(folder, task);
  log_info(text_of("resumed from ", folder, " at step ", step));
  const std::string changed = changed_keys(before, *options_json_);
  if (!changed.empty()) log_info("this run continues with other options: " + changed);
  last_saved_ = step;
  return step;
}

void RunCheckpoints::save(std::int64_t step, const TrainingTask& task) {
  if (step == last_saved_) return;
  last_saved_ = step;
  const bool from_all = subject_.optimizer.is_divided() || has_parts();  // no rank has all states or weights
  if (store_ == nullptr && !from_all) return;
  std::vector<TensorSource> tensors;
  if (!options_.save_only_model) {
    const StateLayout layout(subject_.model.weights(), StateNames::kParts, subject_.optimizer.held_rows());
    for (const auto& [prefix, store] : subject_.optimizer.workspace().saved_stores()) {
      std::ranges::move(state_sources(layout, *store, prefix), std::back_inserter(tensors));
    }
  }
  if (!from_all) return write(step, task, std::move(tensors), subject_.weights);
  with_weights([&](const TensorStore& weights) {
    RankTensors all(*setup_.job.peers(), std::move(tensors));
    if (store_ == nullptr) return all.serve();
    write(step, task, all.of_all_ranks(), weights);
    all.finish();
  });
}

void RunCheckpoints::write(std::int64_t step, const TrainingTask& task, std::vector<TensorSource> tensors,
                           const TensorStore& weights) {
  const TaskSnapshot snapshot(task);
  if (!options_.save_only_model) std::ranges::move(sources_of(snapshot.tensors), std::back_inserter(tensors));
  Json state{{"task", snapshot.state},
             {"optimizer_steps", subject_.optimizer.steps()},
             {"command", setup_.command},
             {"model_only", options_.save_only_model},
             {"options", *options_json_}};
  if (best_) state["best"] = {{"step", best_->step}, {"value", best_->value}};
  store_->save({.step = step, .state = state, .tensors = tensors, .write_model = [&](const fs::path& folder) {
                  write_model_folder(folder, subject_, weights);
                }});
  if (std::exchange(replaces_, false)) store_->remove_others();
  if (options_.save_total_limit) {
    store_->apply_limit(*options_.save_total_limit,
                        best_ ? std::span<const std::int64_t>(&best_->step, 1) : std::span<const std::int64_t>());
  }
}

void RunCheckpoints::save_early(std::int64_t steps, TrainingTask& task, const TaskSnapshot* before) {
  if (before != nullptr) {
    before->restore(task);
    subject_.optimizer.discard();
  }
  save(steps, task);
  log_info(text_of("saved step ", steps, " in ", output_dir_.string(),
                   options_.save_only_model ? "; save_only_model is set, so it cannot be resumed"
                                            : "; the same command continues from there"));
}

void RunCheckpoints::compare_with_best(std::int64_t step, const MetricValues& values) {
  std::string metric = options_.metric_for_best_model;
  if (!metric.starts_with("eval_")) metric = "eval_" + metric;
  std::string names;
  for (const auto& [name, value] : values) {
    names += (names.empty() ? "" : ", ") + name;
    if (name != metric) continue;
    if (std::isnan(value)) return;
    const bool greater = options_.greater_is_better.value_or(!metric.ends_with("loss"));
    if (!best_ || (greater ? value > best_->value : value < best_->value)) best_ = Best{step, value};
    return;
  }
  throw Error("metric_for_best_model", text_of("an evaluation has no ", metric), "one of " + names);
}

void RunCheckpoints::load_best() {
  setup_.job.barrier();  // rank 0 has saved it
  if (!best_) return;
  const fs::path path = folder_of(best_->step);
  if (!fs::exists(path)) {
    log_warning(text_of(path.string(), " no longer exists: the last weights are kept"));
    return;
  }
  load_model(path);
  log_info(text_of("the best evaluation was that of step ", best_->step, ", ", options_.metric_for_best_model, " ",
                   best_->value, ": its weights are kept"));
}

void RunCheckpoints::save_final() const {
  if (!setup_.job.is_first() && !has_parts()) return;
  with_weights([&](const TensorStore& weights) {
    if (setup_.job.is_first()) write_model_folder(output_dir_, subject_, weights);
  });
}

}  // namespace hone
