#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "backend/device_memory.h"
#include "backend/device_model.h"
#include "cli/bench/kind.h"
#include "cli/bench/models.h"
#include "cli/bench/results.h"
#include "cli/bench/training_step.h"
#include "cli/command.h"
#include "cli/profile/limits.h"
#include "cli/profile/report.h"
#include "cli/profile/timing.h"
#include "cli/training_job.h"
#include "core/error.h"
#include "core/job_log.h"
#include "core/log.h"
#include "core/strings.h"
#include "planner/model_flops.h"
#include "train/run_collectives.h"
#include "train/setup.h"

namespace hone {
namespace {

struct BenchTrainOptions : StepOptions {
  double seconds = 20;
  double warmup_seconds = 5;
  double peak_tflops = 0;
  bool profile = false;
  bool full = false;
  bool large_models = false;
  std::string json;

  template <class Visitor>
  void fields(Visitor& v) {
    StepOptions::fields(v);
    v.group("Measurement");
    v("seconds", seconds, "Seconds of measurement after the warm-up", above(0));
    v("warmup_seconds", warmup_seconds, "Seconds of warm-up steps", at_least(0));
    v("peak_tflops", peak_tflops,
      "Peak TFLOP/s of the device, for the MFU; 0: from the data sheet if dtype is bfloat16 and hone knows the device, "
      "otherwise the measured rate of a large GEMM",
      at_least(0));
    v("profile", profile, "Print the time of each operation instead; hone profile gives more detail");
    v("full", full, "Measure the GPT-2 models small to xl instead of one model");
    v("large_models", large_models, "Measure the GPT-2 models 1.5b to 13b");
    v("json", json, "JSON file to write the results to");
    v.group("Several processes");
    v("num_processes", num_processes,
      "Processes that train together by data parallelism, started on this machine unless a launcher started them",
      within(1, 1024));
    v("zero_stage", zero_stage,
      "What is divided over the processes: 0: nothing; 1: the optimizer states; 2: and the gradients; 3: and the "
      "weights",
      within(0, 3));
  }
};

constexpr double kLimitSeconds = 0.5;  // duration of the measurement of a limit that is not stored yet

// Returns the length of a token's document, averaged over the tokens.
double mean_length(const StepOptions& options) {
  double squares = 0;
  for (const std::int64_t length : document_lengths(options)) squares += static_cast<double>(length * length);
  return squares / static_cast<double>(options.batch_size * options.seq_len);
}

void print_profile(TrainingStep& step, std::span<const HostBatch> batches, Device& device, DType dtype) {
  constexpr int kProfiledSteps = 3;
  Timeline timeline;
  for (int i = 0; i < kProfiledSteps; ++i) step.run_profiled(batches, timeline);
  std::fputs(to_text(make_report(timeline, device_limits(device, dtype, kLimitSeconds, false)), 100).c_str(), stdout);
}

// Denominator of the MFU.
struct Peak {
  double flops_per_second = 0;
  bool measured = false;  // rate of a large GEMM instead of the data sheet's
};

// Returns the peak from the options or the data sheet, otherwise measures it.
Peak peak_of(const BenchTrainOptions& options, Device& device) {
  const DType dtype = options.weight_dtype();
  double known = options.peak_tflops * 1e12;
  if (known == 0 && dtype == DType::kBf16) known = built_in_model(device.name()).peak_flops.per_second;
  return known > 0 ? Peak{known, false} : Peak{gemm_limit(device, dtype, kLimitSeconds), true};
}

// Example: "53.4 GFLOP/s, MFU 41.0% of 130 GFLOP/s in a large GEMM".
std::string utilization_text(double flops_per_second, const Peak& peak) {
  std::array<char, 120> text{};
  std::snprintf(text.data(), text.size(), "%s, MFU %.1f%% of %s%s", flops_text(flops_per_second).c_str(),
                100 * flops_per_second / peak.flops_per_second, flops_text(peak.flops_per_second).c_str(),
                peak.measured ? " in a large GEMM" : "");
  return text.data();
}

// Runs steps for some seconds of the first rank's clock, at least `least` of them, and returns the seconds of a step.
double run_steps(const std::function<void()>& run, double seconds, std::int64_t least, const Job& job) {
  const auto begin = Clock::now();
  std::int64_t steps = 0;
  while (steps < least || job.any(job.is_first() && seconds_since(begin) < seconds)) {
    run();
    ++steps;
  }
  return steps == 0 ? 0.0 : seconds_since(begin) / static_cast<double>(steps);
}

// Measures a model, prints its figures and adds them to `rows`.
void measure(const BenchTrainOptions& options, const Job& job, std::vector<ResultRow>& rows) {
  const auto start = Clock::now();
  const std::unique_ptr<Model> model = open_shape(options);
  Device& device = open_device(options.device);
  const RunCollectives collectives(device, job);
  const std::size_t available_before = memory_of(device).available;
  set_gemm_tuning(device, options.gemm.tuning());
  const Peak peak = peak_of(options, device);  // before the step allocates its memory, because it may measure
  Workspace workspace = trace_step(options, *model);
  check_step_fits(options, *model, workspace);
  // [gradient_accumulation_steps]; all micro-batches are equal, which does not change the time.
  const std::vector<HostBatch> batches(static_cast<std::size_t>(options.gradient_accumulation_steps),
                                       random_batch(options, model->shape().vocab_size));
  const std::size_t planned = workspace.memory().total();
  TrainingStep step(*model, std::move(workspace), optimizer_options(options.training()), options.weight_dtype(), device,
                    collectives.data());
  double loss = step.run(batches);
  log_info(text_of(options.model, ": ", format_count(parameter_count(*model)), " parameters on ", device.name(), ", ",
                   format_bytes(device.allocated_bytes()), ", first step after ", format_duration(seconds_since(start)),
                   ", loss ", loss));
  const auto run = [&] { loss = step.run(batches); };
  (void)run_steps(run, options.warmup_seconds, 0, job);
  if (options.profile) {
    print_profile(step, batches, device, options.weight_dtype());
    return;
  }
  const double seconds = run_steps(run, options.seconds, 1, job);
  std::array<double, 1> losses{loss};
  job.sum(losses);
  if (!job.is_first()) return;
  const double tokens = static_cast<double>(options.batch_size * options.seq_len * options.gradient_accumulation_steps);
  const double rate = tokens / seconds;
  const double flops = rate * model_flops_per_token(*model, mean_length(options));
  std::string shape = text_of(options.model, " batch ", options.batch_size, " x ", options.seq_len, ", accumulation ",
                              options.gradient_accumulation_steps);
  if (job.size() > 1) {
    shape += text_of(", a process of ", job.size());
    if (options.zero_stage > 0) shape += text_of(", zero_stage ", options.zero_stage);
  }
  std::printf("%s: %.0f tokens/s, %s, step %.1f ms, %s, loss %.3f\n", shape.c_str(), rate,
              utilization_text(flops, peak).c_str(), seconds * 1e3, format_bytes(device.allocated_bytes()).c_str(),
              losses[0]);
  if (device.kind() != DeviceKind::kCpu) {
    // The plan does not include libraries and recorded launches; this reports what they take.
    const auto beyond =
        static_cast<std::int64_t>(available_before) - static_cast<std::int64_t>(memory_of(device).available + planned);
    log_info(text_of("the device's free memory fell by the plan and ", beyond / (1 << 20),
                     " MiB more, for libraries and recorded launches"));
  }
  rows.push_back({"train", shape, rate, "tokens/s"});
  rows.push_back({"train", shape, flops * 1e-12, "TFLOP/s"});
  rows.push_back({"train", shape, seconds * 1e3, "ms"});
  rows.push_back({"train", shape, static_cast<double>(device.allocated_bytes()), "bytes"});
}

// Measures the models of the GPT table that the options select. A model that does not fit prints its error instead.
void measure_table(BenchTrainOptions options, std::vector<ResultRow>& rows) {
  for (const GptTableRow& row : gpt_table()) {
    if (row.large ? !options.large_models : !options.full) continue;
    options.model = row.model;
    options.batch_size = row.batch_size;
    options.seq_len = row.seq_len;
    const ModelShape shape = open_shape(options)->shape();
    std::printf("%s: %lld x %lld x %lld, ", options.model.c_str(), static_cast<long long>(shape.num_hidden_layers),
                static_cast<long long>(shape.hidden_size), static_cast<long long>(shape.num_attention_heads));
    std::printf("%.2f million parameters\n", static_cast<double>(parameter_count(*open_shape(options))) * 1e-6);
    try {
      measure(options, {}, rows);
    } catch (const Error& error) {
      std::printf("%s: %s\n", options.model.c_str(), error.what());
    }
  }
}

int train_bench(BenchTrainOptions& options, const OptionInput& input, const std::string& command) {
  options.complete(input);
  const JobPlace place = job_place();
  LocalRanks ranks;
  if (place.is_job()) options.num_processes = place.size;
  if (options.num_processes > 1 && (options.full || options.large_models || options.profile)) {
    throw Error("num_processes",
                text_of("is ", options.num_processes, ", but full, large_models and profile are for 1"));
  }
  if (!place.is_job() && options.num_processes > 1) {
    ranks = {.count = static_cast<int>(options.num_processes), .total = static_cast<int>(options.num_processes)};
  }
  options.rank = place.rank;
  if (place.rank > 0) set_silent(true);  // rank 0 logs for all
  constexpr std::int64_t kAnswerSeconds = 120;
  return run_ranks(ranks, place, kAnswerSeconds, [&](const Job& job) {
    std::vector<ResultRow> rows;
    if (options.full || options.large_models) {
      measure_table(options, rows);
    } else {
      measure(options, job, rows);
    }
    if (!options.json.empty() && job.is_first()) {
      write_results(options.json, rows, open_device(options.device).name(), command);
    }
    job.barrier();
    return 0;
  });
}

}  // namespace

BenchKind bench_train() {
  return bench_kind("train", "complete training steps on random tokens, including the optimizer", train_bench);
}

}  // namespace hone
