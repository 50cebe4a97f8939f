// Reports the metrics of a run while it trains: to metrics.jsonl, to the trackers and to the log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "train/metric_window.h"
#include "train/run_notes.h"
#include "train/training_task.h"

namespace hone {

class Trackers;
class ResourceMeter;

class RunLog {
 public:
  // Opens metrics.jsonl and the trackers of a run that starts after `first` steps, on rank 0 of a job only. The
  // references must outlive it.
  RunLog(const TrainingOptions& options, const TrainerSetup& setup, const TrainingSubject& subject,
         const Json& options_json, std::int64_t first);
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;
  ~RunLog();

  // Marks the start of the first step, from which rates are measured.
  void begin(const TrainingTask& task);
  // Adds a step that was applied; warns if many steps in a row changed nothing (IdleDetector).
  void add_step(const TrainingTask& task, const MetricValues& values, double grad_norm, double learning_rate);
  // Logs a line for the steps since the previous line and returns its metrics.
  MetricValues log_steps(std::int64_t step, const TrainingTask& task);
  // Logs an evaluation, if it has values.
  void log_evaluation(std::int64_t step, const TrainingTask& task, const MetricValues& values);
  // Writes metrics of a step to metrics.jsonl and the trackers without a log line.
  void log_metrics_only(std::int64_t step, const MetricValues& values);
  // Runs work that is not part of a step; its time is excluded from rates.
  void exclude_from_rates(const std::function<void()>& work);
  // Closes the trackers of a run that succeeded.
  void finish();

 private:
  void write_row(const MetricRow& row);

  const TrainingOptions& options_;
  std::int64_t total_steps_;
  int job_size_;
  std::unique_ptr<MetricsWriter> metrics_;  // null on other ranks than 0
  std::unique_ptr<Trackers> trackers_;      // likewise
  std::unique_ptr<ResourceMeter> usage_;
  MetricWindow window_;
  IdleDetector idle_;
};

}  // namespace hone
