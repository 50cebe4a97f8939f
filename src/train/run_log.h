// What a run tells of itself while it trains: metrics.jsonl, the trackers, the lines of its log.
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
class UsageMeter;

class RunLog {
 public:
  // Opens metrics.jsonl and the trackers of a run that goes on after `first` steps. The references outlive it.
  RunLog(const TrainingOptions& options, const TrainerSetup& setup, const TrainingSubject& subject,
         const Json& options_json, std::int64_t first);
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;
  ~RunLog();

  // The first step begins: rates count from here.
  void begin(const TrainingTask& task);
  // Counts a step that was applied; warns where many have taught nothing.
  void add_step(const TrainingTask& task, const MetricValues& values, double grad_norm, double learning_rate);
  // Logs the steps since the last such line; returns its metrics.
  MetricValues log_steps(std::int64_t step, const TrainingTask& task);
  // Logs an evaluation, where it has values.
  void log_evaluation(std::int64_t step, const TrainingTask& task, const MetricValues& values);
  // Metrics of a step that no line shows.
  void log_beside(std::int64_t step, const MetricValues& values);
  // Work that is not the steps': its time counts in no rate.
  void leave_out(const std::function<void()>& work);
  void finish();

 private:
  void write_row(const MetricRow& row);

  const TrainingOptions& options_;
  std::int64_t total_steps_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<Trackers> trackers_;
  std::unique_ptr<UsageMeter> usage_;
  MetricWindow window_;
  IdleWatch idle_;
};

}  // namespace hone
