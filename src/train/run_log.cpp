#include "train/run_log.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/log.h"
#include "core/strings.h"
#include "model/weights.h"
#include "tracker/tracker.h"
#include "train/resource_metrics.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

using Clock = MetricWindow::Clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

RunLog::RunLog(const TrainingOptions& options, const TrainerSetup& setup, const TrainingSubject& subject,
               const Json& options_json, std::int64_t first)
    : options_(options), total_steps_(setup.total_steps), job_size_(setup.job.size()) {
  usage_ = std::make_unique<ResourceMeter>(subject.weights.device(), model_dtype(subject.model, subject.weights));
  if (!setup.job.is_first()) return;
  const fs::path output_dir = options.output_dir;
  const fs::path path = output_dir / "metrics.jsonl";
  metrics_ = std::make_unique<MetricsWriter>(path, first > 0 ? std::optional(first) : std::nullopt, options_.run_name);
  const std::vector<MetricRow> history = read_metrics(path);
  trackers_ = std::make_unique<Trackers>(tracker_names(options_.report_to, "report_to"),
                                         TrackedRun{.output_dir = output_dir,
                                                    .command = setup.command,
                                                    .run_name = options_.run_name,
                                                    .options = &options_json,
                                                    .resumed_step = first,
                                                    .history = history,
                                                    .keys = options_.keys_of_trackers});
}

RunLog::~RunLog() = default;

void RunLog::begin(const TrainingTask& task) {
  window_ = MetricWindow();
  window_.first_tokens = task.tokens_seen();
}

void RunLog::add_step(const TrainingTask& task, const MetricValues& values, double grad_norm, double learning_rate) {
  for (const auto& [name, value] : values) window_.add(name, value);
  window_.grad_norm = grad_norm;
  window_.learning_rate = learning_rate;
  ++window_.steps;
  const std::string remark = idle_.see(task.idle_cause(values, grad_norm));
  if (!remark.empty()) log_warning(remark);
}

MetricValues RunLog::log_steps(std::int64_t step, const TrainingTask& task) {
  const double seconds = std::max(seconds_since(window_.start), 1e-9);
  const double tokens = static_cast<double>(task.tokens_seen() - window_.first_tokens);
  MetricRow row;
  row.step = step;
  window_.add_means_to(row);
  row.set("grad_norm", window_.grad_norm);
  row.set("learning_rate", window_.learning_rate);
  row.set("epoch", task.epoch());
  row.set("num_tokens", static_cast<double>(task.tokens_seen()));
  row.set("tokens_per_second", tokens / seconds);
  row.set("tokens_per_second_per_device", tokens / seconds / job_size_);
  row.set("step_time", seconds / static_cast<double>(std::max<std::int64_t>(window_.steps, 1)));
  row.set("gflops_per_second", (task.flops() - window_.first_flops) / seconds * 1e-9);
  usage_->add_to(row, (task.flops() - window_.first_flops) / seconds / job_size_);
  write_row(row);
  // The log line shows a selection of the row.
  std::vector<std::string> own = task.shown_metrics();
  std::vector<std::string_view> shown{"loss"};
  shown.insert(shown.end(), own.begin(), own.end());
  shown.insert(shown.end(), {"grad_norm", "learning_rate", "epoch", "tokens_per_second", "padding"});
  if (options_.metrics_block) {
    const std::string block = metrics_block(row, usage_->device());
    for (const std::string& line : split(trim(block), '\n')) log_line(line);
  } else {
    log_info(metric_line(row, total_steps_, shown));
  }
  window_ = MetricWindow();
  window_.first_tokens = task.tokens_seen();
  window_.first_flops = task.flops();
  return row.values;
}

void RunLog::log_evaluation(std::int64_t step, const TrainingTask& task, const MetricValues& values) {
  if (values.empty()) return;
  MetricRow row;
  row.step = step;
  for (const auto& [name, value] : values) row.set(name, value);
  write_row(row);
  std::vector<std::string> own = task.shown_metrics();
  for (std::string& name : own) name.insert(0, "eval_");
  std::vector<std::string_view> shown{"eval_loss", "eval_mean_token_accuracy"};
  shown.insert(shown.end(), own.begin(), own.end());
  shown.push_back("eval_entropy");
  log_info(metric_line(row, total_steps_, shown));
}

void RunLog::log_metrics_only(std::int64_t step, const MetricValues& values) {
  if (values.empty()) return;
  MetricRow row;
  row.step = step;
  for (const auto& [name, value] : values) row.set(name, value);
  write_row(row);
}

void RunLog::exclude_from_rates(const std::function<void()>& work) {
  const Clock::time_point start = Clock::now();
  work();
  window_.start += Clock::now() - start;
}

void RunLog::finish() {
  if (trackers_ != nullptr) trackers_->finish(true);
}

void RunLog::write_row(const MetricRow& row) {
  if (metrics_ == nullptr) return;
  metrics_->append(row);
  trackers_->log(row);
}

}  // namespace hone
