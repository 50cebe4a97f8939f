#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

#include "checkpoint/training_state.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/strings.h"
#include "model/adapter_files.h"
#include "model/weights.h"
#include "tracker/tracker.h"
#include "train/metric_window.h"
#include "train/usage.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

using Clock = MetricWindow::Clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A checkpoint is a model folder, or an adapter's, too, so that it can be evaluated and chatted with.
void write_model_folder(const fs::path& path, const TrainingSubject& subject) {
  const Json generation_config = parse_json(subject.generation_config, "generation_config.json");
  if (const LoraModel* lora = subject.model.adapter()) {
    save_adapter(path, *lora, subject.weights, &generation_config);
  } else {
    save_model(path, subject.model, subject.weights, &generation_config);
  }
  subject.tokenizer.save(path);
}

void add_sources(std::vector<TensorSource>& sources, const TensorStore& store, const std::string& prefix,
                 std::vector<std::byte>& staging) {
  for (const NamedType& tensor : store.tensors()) {
    std::vector<std::int64_t> shape;
    shape.reserve(tensor.type.shape.size());
    for (const Dim& dim : tensor.type.shape) shape.push_back(dim.size);
    sources.push_back({prefix + tensor.name, tensor.type.dtype, shape, [&store, &staging, name = tensor.name] {
                         staging = store.download(name);
                         return std::span<const std::byte>(staging);
                       }});
  }
}

void load_store(TensorStore& store, const SafetensorsFile& file, const std::string& prefix) {
  for (const NamedType& tensor : store.tensors()) {
    const StoredTensor& stored = file.at(prefix + tensor.name);
    std::vector<std::byte> bytes(tensor.type.bytes());
    if (static_cast<std::int64_t>(bytes.size() / size_of(tensor.type.dtype)) != stored.element_count()) {
      throw Error(file.name(), text_of("tensor ", stored.name, " is ", shape_text(stored.shape), ", expected ",
                                       to_text(tensor.type)));
    }
    read_as(stored, tensor.type.dtype, bytes);
    store.upload(tensor.name, bytes);
  }
}

constexpr const char* kOptimizer = "optimizer.";
constexpr const char* kExtra = "extra.";

}  // namespace

Trainer::Trainer(const TrainingOptions& options, TrainerSetup setup, TrainingSubject subject)
    : options_(options),
      setup_(std::move(setup)),
      subject_(std::move(subject)),
      schedule_(make_schedule(options, setup_.total_steps)),
      output_dir_(options.output_dir),
      checkpoints_(std::make_unique<CheckpointStore>(output_dir_)),
      options_json_(std::make_unique<const Json>(parse_json(setup_.options, "options"))) {}

Trainer::~Trainer() = default;

void Trainer::load_model(const fs::path& checkpoint) {
  if (const LoraModel* lora = subject_.model.adapter()) return load_adapter(checkpoint, *lora, subject_.weights);
  if (is_adapter_folder(checkpoint)) {
    throw Error(checkpoint.string(), "holds an adapter, and use_peft is not set",
                "set use_peft, or another output_dir");
  }
  const ModelDirectory directory(checkpoint);
  const DType dtype = subject_.weights.tensors().front().type.dtype;
  subject_.weights.copy_from(load_weights(subject_.model, directory, dtype, subject_.weights.device()));
}

Json Trainer::load_checkpoint(const fs::path& checkpoint, TrainingTask& task) {
  const TrainingState state(checkpoint);
  if (state.json().value("model_only", false)) {
    throw Error(checkpoint.string(), "holds the model alone: it was saved with save_only_model and cannot be resumed",
                "name it as model_name_or_path, with another output_dir");
  }
  if (const std::string command = state.json().value("command", setup_.command); command != setup_.command) {
    throw Error(checkpoint.string(), text_of("is a checkpoint of hone ", command, ", not of hone ", setup_.command),
                "name it as model_name_or_path, with another output_dir");
  }
  load_model(checkpoint);
  for (TensorStore* states : subject_.optimizer.states()) load_store(*states, state.tensors(), kOptimizer);
  if (TensorStore* extra = task.extra_state()) load_store(*extra, state.tensors(), kExtra);
  subject_.optimizer.set_steps(state.json().at("optimizer_steps").get<std::int64_t>());
  if (const auto best = state.json().find("best"); best != state.json().end() && options_.looks_for_best()) {
    best_ = Best{best->at("step").get<std::int64_t>(), best->at("value").get<double>()};
  }
  task.restore(state.json().at("task"));
  return state.json().value("options", Json());
}

std::int64_t Trainer::resume(TrainingTask& task) {
  const std::string& from = options_.resume_from_checkpoint;
  std::optional<CheckpointFolder> checkpoint;
  if (from.empty() || from == "true") {
    if (!from.empty() || !options_.overwrite_output_dir) checkpoint = last_good_checkpoint(output_dir_);
    if (!checkpoint && from == "true") {
      throw Error("resume_from_checkpoint", text_of("there is no checkpoint in ", output_dir_.string()));
    }
  } else if (from != "false") {
    checkpoint = CheckpointFolder{TrainingState(from).step(), from};
  }
  replaces_ = !checkpoint && options_.overwrite_output_dir;
  if (!checkpoint) return 0;
  const Json before = load_checkpoint(checkpoint->path, task);
  log_info(text_of("resumed from ", checkpoint->path.string(), " at step ", checkpoint->step));
  const std::string changed = changed_keys(before, parse_json(setup_.options, "options"));
  if (!changed.empty()) log_info("this run goes on with other keys: " + changed);
  last_saved_ = checkpoint->step;
  return checkpoint->step;
}

void Trainer::save_checkpoint(std::int64_t step, TrainingTask& task) {
  if (step == last_saved_) return;
  Json state{{"task", task.state()},
             {"optimizer_steps", subject_.optimizer.steps()},
             {"command", setup_.command},
             {"model_only", options_.save_only_model},
             {"options", *options_json_}};
  if (best_) state["best"] = {{"step", best_->step}, {"value", best_->value}};
  std::vector<std::byte> staging;
  std::vector<TensorSource> tensors;
  if (!options_.save_only_model) {
    for (const TensorStore* states : subject_.optimizer.states()) add_sources(tensors, *states, kOptimizer, staging);
    if (const TensorStore* extra = task.extra_state()) add_sources(tensors, *extra, kExtra, staging);
  }
  checkpoints_->save({.step = step, .state = state, .tensors = tensors, .write_model = [this](const fs::path& folder) {
                        write_model_folder(folder, subject_);
                      }});
  if (std::exchange(replaces_, false)) checkpoints_->remove_others();
  if (options_.save_total_limit) {
    checkpoints_->apply_limit(*options_.save_total_limit,
                              best_ ? std::span<const std::int64_t>(&best_->step, 1) : std::span<const std::int64_t>());
  }
  last_saved_ = step;
}

void Trainer::show_checkpoint(std::int64_t step, MetricWindow& window) {
  const Clock::time_point start = Clock::now();
  const RunView view{subject_, output_dir_, *options_json_, step};
  const fs::path path = output_dir_ / text_of("checkpoint-", step);
  MetricRow row;
  row.step = step;
  try {
    for (RunObserver* observer : setup_.observers) {
      for (const auto& [name, value] : observer->saved(view, path)) row.set(name, value);
    }
  } catch (const Interrupted&) {
    // The loop sees it too; the checkpoint is there.
  }
  window.start += Clock::now() - start;
  if (!row.values.empty()) write_row(row);
}

void Trainer::fail_nonfinite(std::int64_t step, double loss, double norm, TrainingTask& task) {
  const fs::path batch = output_dir_ / text_of("nonfinite-step-", step + 1, ".json");
  write_json(batch, task.last_batch());
  const std::string what =
      text_of("step ", step + 1, ": loss ", loss, ", gradient norm ", norm, "; its batch is in ", batch.string());
  if (options_.on_nonfinite == OnNonfinite::skip) {
    log_warning(what + "; the step is skipped");
    return;
  }
  save_checkpoint(step, task);
  throw Error(what + "; the weights are as they were before it",
              "look at the data, or lower learning_rate; on_nonfinite: skip goes on without such steps");
}

template <class Work>
void Trainer::guarded(std::int64_t steps, TrainingTask& task, const Json* before, const Work& work) {
  try {
    work();
  } catch (const Interrupted&) {
    save_early(steps, task, before);
    throw;
  } catch (const std::exception&) {
    if (steps == first_) throw;  // nothing was done that is worth keeping
    try {
      save_early(steps, task, before);
    } catch (const std::exception& error) {
      log_warning(text_of("step ", steps, " could not be saved: ", error.what()));
    }
    throw;
  }
}

void Trainer::save_early(std::int64_t steps, TrainingTask& task, const Json* before) {
  if (before != nullptr) {
    task.restore(*before);
    subject_.optimizer.discard();
  }
  save_checkpoint(steps, task);
  log_info(text_of("saved step ", steps, " in ", output_dir_.string(),
                   options_.save_only_model ? "; the model alone, as save_only_model asks: it cannot be resumed"
                                            : "; the same command goes on from there"));
}

bool Trainer::step_once(std::int64_t step, TrainingTask& task, MetricWindow& window) {
  const Json before = task.state();
  MetricValues values;
  guarded(step, task, &before, [&] { values = task.accumulate(step); });
  const auto loss = std::find_if(values.begin(), values.end(), [](const auto& value) { return value.first == "loss"; });
  HONE_ASSERT(loss != values.end(), "a step without a loss");
  const double rate = schedule_.rate(step);
  UpdateResult update{std::numeric_limits<double>::quiet_NaN(), false};
  if (std::isfinite(loss->second)) {
    update = subject_.optimizer.update(rate, options_.max_grad_norm);
  } else {
    subject_.optimizer.discard();
  }
  if (!update.applied) {
    fail_nonfinite(step, loss->second, update.grad_norm, task);
    subject_.optimizer.clear_guard();
    return false;
  }
  task.after_update(step);
  for (const auto& [name, value] : values) window.add(name, value);
  window.grad_norm = update.grad_norm;
  window.learning_rate = rate;
  ++window.steps;
  const std::string remark = idle_.see(task.idle_cause(values, update.grad_norm));
  if (!remark.empty()) log_warning(remark);
  return true;
}

MetricValues Trainer::log(std::int64_t step, const TrainingTask& task, MetricWindow& window) {
  const double seconds = std::max(seconds_since(window.start), 1e-9);
  const double tokens = static_cast<double>(task.tokens_seen() - window.first_tokens);
  MetricRow row;
  row.step = step;
  window.add_means_to(row);
  row.set("grad_norm", window.grad_norm);
  row.set("learning_rate", window.learning_rate);
  row.set("epoch", task.epoch());
  row.set("num_tokens", static_cast<double>(task.tokens_seen()));
  row.set("tokens_per_second", tokens / seconds);
  row.set("tokens_per_second_per_device", tokens / seconds);
  row.set("step_time", seconds / static_cast<double>(std::max<std::int64_t>(window.steps, 1)));
  row.set("gflops_per_second", (task.flops() - window.first_flops) / seconds * 1e-9);
  usage_->add_to(row, (task.flops() - window.first_flops) / seconds);
  write_row(row);
  std::vector<std::string> own = task.shown_metrics();
  std::vector<std::string_view> shown{"loss"};
  shown.insert(shown.end(), own.begin(), own.end());
  shown.insert(shown.end(), {"grad_norm", "learning_rate", "epoch", "tokens_per_second"});
  if (options_.metrics_block) {
    const std::string block = metrics_block(row, usage_->device());
    for (const std::string& line : split(trim(block), '\n')) log_line(line);
  } else {
    log_info(metric_line(row, setup_.total_steps, shown));
  }
  window = MetricWindow();
  window.first_tokens = task.tokens_seen();
  window.first_flops = task.flops();
  return row.values;
}

void Trainer::evaluate(std::int64_t step, TrainingTask& task, MetricWindow& window) {
  const Clock::time_point start = Clock::now();
  const MetricValues values = task.evaluate(step);
  window.start += Clock::now() - start;
  if (values.empty()) return;
  MetricRow row;
  row.step = step;
  for (const auto& [name, value] : values) row.set(name, value);
  write_row(row);
  if (options_.looks_for_best() && step > 0) compare_with_best(step, values);
  std::vector<std::string> own = task.shown_metrics();
  for (std::string& name : own) name.insert(0, "eval_");
  std::vector<std::string_view> shown{"eval_loss", "eval_mean_token_accuracy"};
  shown.insert(shown.end(), own.begin(), own.end());
  shown.push_back("eval_entropy");
  log_info(metric_line(row, setup_.total_steps, shown));
}

void Trainer::compare_with_best(std::int64_t step, const MetricValues& values) {
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

void Trainer::load_best() {
  if (!best_) return;
  const fs::path path = output_dir_ / text_of("checkpoint-", best_->step);
  if (!fs::exists(path)) {
    log_warning(text_of(path.string(), " is not there any more: the last weights stay"));
    return;
  }
  load_model(path);
  log_info(text_of("the best evaluation was that of step ", best_->step, ", ", options_.metric_for_best_model, " ",
                   best_->value, ": its weights are kept"));
}

void Trainer::save_final() const { write_model_folder(output_dir_, subject_); }

void Trainer::open_metrics() {
  const fs::path path = output_dir_ / "metrics.jsonl";
  metrics_ =
      std::make_unique<MetricsWriter>(path, first_ > 0 ? std::optional(first_) : std::nullopt, options_.run_name);
  const std::vector<MetricRow> history = read_metrics(path);
  trackers_ = std::make_unique<Trackers>(tracker_names(options_.report_to, "report_to"),
                                         TrackedRun{.output_dir = output_dir_,
                                                    .command = setup_.command,
                                                    .run_name = options_.run_name,
                                                    .options = options_json_.get(),
                                                    .resumed_step = first_,
                                                    .history = history,
                                                    .keys = options_.keys_of_trackers});
  usage_ = std::make_unique<UsageMeter>(subject_.weights.device(), subject_.weights.tensors().front().type.dtype);
}

void Trainer::write_row(const MetricRow& row) {
  metrics_->append(row);
  trackers_->log(row);
}

MetricValues Trainer::run(TrainingTask& task) {
  const Clock::time_point start = Clock::now();
  first_ = resume(task);
  const std::int64_t first_tokens = task.tokens_seen();
  open_metrics();
  const auto view = [&](std::int64_t step) { return RunView{subject_, output_dir_, *options_json_, step}; };
  for (RunObserver* observer : setup_.observers) observer->started(view(first_));
  const bool finished = first_ >= setup_.total_steps;
  if (finished) log_info(finished_line(output_dir_.string(), first_, setup_.total_steps));
  const MetricValues last = train(task);
  if (options_.load_best_model_at_end) load_best();
  save_final();
  trackers_->finish(true);
  if (!finished) {
    log_info(end_line(setup_.title.empty() ? setup_.command : setup_.title, output_dir_.string(),
                      setup_.total_steps - first_, seconds_since(start), task.tokens_seen() - first_tokens));
  }
  for (RunObserver* observer : setup_.observers) observer->finished(view(setup_.total_steps));
  return last;
}

MetricValues Trainer::train(TrainingTask& task) {
  const std::int64_t total = setup_.total_steps;
  const std::int64_t log_every = interval_steps(options_.logging_steps, total);
  const std::int64_t eval_every = options_.eval_steps ? interval_steps(*options_.eval_steps, total) : log_every;
  const std::int64_t save_every = interval_steps(options_.save_steps, total);
  const Cadence log_cadence{options_.logging_strategy, log_every};
  const Cadence eval_cadence{options_.eval_strategy, eval_every};
  const Cadence save{interval_of(options_.save_strategy), save_every};
  if (options_.load_best_model_at_end && save.strategy == Interval::steps && save_every % eval_every != 0) {
    throw Error("save_steps",
                text_of("is ", save_every, ", no multiple of the ", eval_every, " steps between evaluations"),
                "load_best_model_at_end saves what it evaluates; set save_steps to a multiple of eval_steps");
  }
  MetricValues last;
  Progress progress(setup_.command, total, "step", first_);
  MetricWindow window;
  window.first_tokens = task.tokens_seen();
  double epoch = task.epoch();
  if (options_.eval_on_start && first_ == 0) {
    guarded(0, task, nullptr, [&] { evaluate(0, task, window); });
  }
  for (std::int64_t step = first_; step < total; ++step) {
    step_once(step, task, window);
    const std::int64_t done = step + 1;
    const bool epoch_ended = std::floor(task.epoch()) > std::floor(epoch);
    epoch = task.epoch();
    const bool end = done == total;
    guarded(done, task, nullptr, [&] {
      if (log_cadence.due(done, epoch_ended) || end || (done == 1 && options_.logging_first_step)) {
        last = log(done, task, window);
      }
      if (eval_cadence.due(done, epoch_ended || end) ||
          (end && options_.do_eval && options_.eval_strategy == Interval::no)) {
        evaluate(done, task, window);
      }
    });
    const bool is_best = options_.save_strategy == SaveStrategy::best && best_ && best_->step == done;
    if (is_best || save.due(done, epoch_ended || end) || (end && save.strategy == Interval::steps)) {
      save_checkpoint(done, task);
      show_checkpoint(done, window);
    }
    progress.advance();
    guarded(done, task, nullptr, throw_if_interrupted);
  }
  progress.finish();
  return last;
}

}  // namespace hone
