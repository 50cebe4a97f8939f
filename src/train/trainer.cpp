#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/strings.h"
#include "train/task_snapshot.h"

namespace hone {
namespace fs = std::filesystem;

Trainer::Trainer(const TrainingOptions& options, TrainerSetup setup, TrainingSubject subject)
    : options_(options),
      setup_(std::move(setup)),
      subject_(std::move(subject)),
      schedule_(make_schedule(options, setup_.total_steps)),
      output_dir_(options.output_dir),
      checkpoints_(options_, setup_, subject_) {}

RunView Trainer::view(std::int64_t step) const { return {subject_, output_dir_, checkpoints_.options_json(), step}; }

void Trainer::fail_nonfinite(std::int64_t step, double loss, double norm, TrainingTask& task) {
  const std::string rank = setup_.job.size() > 1 ? text_of("-rank-", setup_.job.rank()) : std::string();
  const fs::path batch = output_dir_ / text_of("nonfinite-step-", step + 1, rank, ".json");
  write_json(batch, task.last_batch());
  const std::string what =
      text_of("step ", step + 1, ": loss ", loss, ", gradient norm ", norm, "; its batch is in ", batch.string());
  if (options_.on_nonfinite == OnNonfinite::kSkip) {
    log_warning(what + "; the step is skipped");
    return;
  }
  checkpoints_.save(step, task);
  if (!setup_.job.is_first()) throw JobFailure("", what, {}, true);  // all ranks stop here, and rank 0 says why
  throw Error(what + "; the weights are as they were before it",
              "look at the data, or lower learning_rate; on_nonfinite: skip leaves out such steps");
}

template <class Work>
void Trainer::guarded(std::int64_t steps, TrainingTask& task, const TaskSnapshot* before, const Work& work) {
  try {
    work();
  } catch (const Interrupted&) {
    checkpoints_.save_early(steps, task, before);
    throw;
  } catch (const std::exception&) {
    if (steps == first_) throw;  // this process has done no step: there is nothing new to save
    try {
      checkpoints_.save_early(steps, task, before);
    } catch (const std::exception& error) {
      log_warning(text_of("step ", steps, " could not be saved: ", error.what()));
    }
    throw;
  }
}

void Trainer::step_once(std::int64_t step, TrainingTask& task) {
  // The state before the step: if the step throws, the run is saved as it was after the previous one.
  const TaskSnapshot before(task);
  MetricValues values;
  setup_.job.set_activity(text_of("step ", step + 1));
  guarded(step, task, &before, [&] {
    values = task.accumulate(step);
    subject_.optimizer.sum_gradients();
  });
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
    return;
  }
  task.after_update(step);
  log_->add_step(task, values, update.grad_norm, rate);
}

template <class Work>
void Trainer::for_observers(const Work& work) {
  if (!setup_.job.is_first()) return;
  for (RunObserver* observer : setup_.observers) work(*observer);
}

void Trainer::evaluate(std::int64_t step, TrainingTask& task) {
  MetricValues values;
  log_->exclude_from_rates([&] { values = task.evaluate(step); });
  subject_.optimizer.check_job();
  log_->log_evaluation(step, task, values);
  if (!values.empty() && options_.compares_evaluations() && step > 0) checkpoints_.compare_with_best(step, values);
}

void Trainer::save(std::int64_t step, TrainingTask& task) {
  checkpoints_.save(step, task);
  MetricValues values;
  log_->exclude_from_rates([&] {
    try {
      for_observers([&](RunObserver& observer) {
        for (const auto& value : observer.saved(view(step), checkpoints_.folder_of(step))) values.push_back(value);
      });
    } catch (const Interrupted&) {
      // The loop checks for the interrupt itself; the checkpoint is complete.
    }
  });
  log_->log_metrics_only(step, values);
}

MetricValues Trainer::run(TrainingTask& task) {
  const auto start = std::chrono::steady_clock::now();
  first_ = checkpoints_.resume(task);
  const std::int64_t first_tokens = task.tokens_seen();
  log_ = std::make_unique<RunLog>(options_, setup_, subject_, checkpoints_.options_json(), first_);
  for_observers([&](RunObserver& observer) { observer.started(view(first_)); });
  const bool finished = first_ >= setup_.total_steps;
  if (finished) log_info(finished_line(output_dir_.string(), first_, setup_.total_steps));
  const MetricValues last = train(task);
  if (options_.load_best_model_at_end) checkpoints_.load_best();
  checkpoints_.save_final();
  log_->finish();
  if (!finished) {
    log_info(end_line(setup_.title.empty() ? setup_.command : setup_.title, output_dir_.string(),
                      setup_.total_steps - first_,
                      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
                      task.tokens_seen() - first_tokens));
  }
  for_observers([&](RunObserver& observer) { observer.finished(view(setup_.total_steps)); });
  setup_.job.barrier();
  return last;
}

MetricValues Trainer::train(TrainingTask& task) {
  const std::int64_t total = setup_.total_steps;
  const std::int64_t log_every = interval_steps(options_.logging_steps, total);
  const std::int64_t eval_every = options_.eval_steps ? interval_steps(*options_.eval_steps, total) : log_every;
  const std::int64_t save_every = interval_steps(options_.save_steps, total);
  const Cadence log_cadence{options_.logging_strategy, log_every};
  const Cadence eval_cadence{options_.eval_strategy, eval_every};
  const Cadence save_cadence{interval_of(options_.save_strategy), save_every};
  if (options_.load_best_model_at_end && save_cadence.strategy == Interval::kSteps && save_every % eval_every != 0) {
    throw Error("save_steps",
                text_of("is ", save_every, ", not a multiple of the ", eval_every, " steps between evaluations"),
                "load_best_model_at_end saves what it evaluates; set save_steps to a multiple of eval_steps");
  }
  // Each step: update, then log, evaluate and save if due. Saving comes last, so a checkpoint records the best
  // evaluation up to its own step.
  MetricValues last;
  Progress progress(setup_.command, total, "step", first_);
  log_->begin(task);
  double epoch = task.epoch();
  if (options_.eval_on_start && first_ == 0) {
    guarded(0, task, nullptr, [&] { evaluate(0, task); });
  }
  for (std::int64_t step = first_; step < total; ++step) {
    step_once(step, task);
    const std::int64_t done = step + 1;
    const bool epoch_ended = std::floor(task.epoch()) > std::floor(epoch);
    epoch = task.epoch();
    const bool end = done == total;
    guarded(done, task, nullptr, [&] {
      if (log_cadence.due(done, epoch_ended) || end || (done == 1 && options_.logging_first_step)) {
        last = log_->log_steps(done, task);
      }
      if (eval_cadence.due(done, epoch_ended || end) ||
          (end && options_.do_eval && options_.eval_strategy == Interval::kNo)) {
        evaluate(done, task);
      }
    });
    const bool is_best = options_.save_strategy == SaveStrategy::kBest && checkpoints_.is_best(done);
    if (is_best || save_cadence.due(done, epoch_ended || end) || (end && save_cadence.strategy == Interval::kSteps)) {
      save(done, task);
    }
    progress.advance();
    guarded(done, task, nullptr, [&] {
      if (setup_.job.any(interrupted())) throw Interrupted();
    });
  }
  progress.finish();
  return last;
}

}  // namespace hone
