#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>

#include "backend/device_usage.h"
#include "cli/bench/kind.h"
#include "cli/bench/results.h"
#include "cli/bench/training_step.h"
#include "cli/command.h"
#include "cli/profile/grpo.h"
#include "cli/profile/timing.h"
#include "cli/training_job.h"
#include "core/error.h"
#include "core/job_log.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/random.h"
#include "core/strings.h"
#include "model/weights.h"
#include "ops/registry.h"
#include "rl/grpo_run.h"
#include "rl/grpo_task.h"
#include "train/memory_fit.h"
#include "train/run_collectives.h"
#include "train/setup.h"

namespace hone {
namespace {

struct BenchGrpoOptions {
  std::string model = "qwen2.5-0.5b";
  std::int64_t layers = 0;
  TorchDtype dtype = TorchDtype::kBfloat16;
  std::int64_t num_generations = 8;
  std::int64_t per_device_train_batch_size = 8;
  std::int64_t gradient_accumulation_steps = 8;
  std::int64_t prompt_len = 128;
  std::int64_t mean_completion_len = 256;
  std::int64_t max_completion_length = 1024;
  std::int64_t max_staleness = 0;
  double beta = 0;
  std::optional<std::int64_t> max_tokens_per_micro_batch;
  Recomputation gradient_checkpointing = Recomputation::kAutomatic;
  OptimizerType optim = OptimizerType::kAdamwBf16;
  GradientType gradient_dtype = GradientType::kBfloat16;
  DeviceChoice device = DeviceChoice::kAutomatic;
  GemmOptions gemm;
  std::int64_t steps = 5;
  std::int64_t warmup_steps = 2;
  std::string json;
  std::int64_t num_processes = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("GRPO step");
    v("model", model, "Name of a known shape such as qwen2.5-7b, or path of a config.json");
    v("layers", layers, "Number of layers; 0: the model's", at_least(0));
    v("dtype", dtype, "Dtype of the weights");
    v("num_generations", num_generations, "Completions per prompt", within(2, 1'000'000));
    v("per_device_train_batch_size", per_device_train_batch_size, "Completions per batch", at_least(1));
    v("gradient_accumulation_steps", gradient_accumulation_steps, "Batches per optimizer step and generation",
      at_least(1));
    v("prompt_len", prompt_len, "Tokens per prompt", at_least(1));
    v("mean_completion_len", mean_completion_len,
      "Mean tokens per completion if none were cut; with random weights each token is the last one with equal "
      "probability",
      at_least(1));
    v("max_completion_length", max_completion_length, "Most tokens per completion", at_least(1));
    v("max_staleness", max_staleness, "1: begin the next generation where the last completions of one leave room",
      within(0, 1));
    v("beta", beta, "Weight of the KL divergence from the reference model; 0: no reference model", at_least(0));
    v("max_tokens_per_micro_batch", max_tokens_per_micro_batch,
      "Most tokens of a micro-batch; unset: those of a batch of the longest completions", at_least(1));
    v("gradient_checkpointing", gradient_checkpointing,
      "Recompute layers in the backward pass; auto: recompute as little as fits");
    v("optim", optim, "Optimizer; unset with dtype float32: adamw_torch");
    v("gradient_dtype", gradient_dtype,
      "Dtype in which gradients of matrices accumulate; unset with dtype float32: float32");
    v("device", device, kDeviceHelp);
    gemm.fields(v);
    v.group("Measurement");
    v("steps", steps, "Measured steps", at_least(1));
    v("warmup_steps", warmup_steps, "Steps before them", at_least(0));
    v("json", json, "JSON file to write the results to");
    v.group("Several processes");
    v("num_processes", num_processes,
      "Processes that generate and train together, each as many completions as one would, started on this machine "
      "unless a launcher started them",
      within(1, 1024));
  }

  [[nodiscard]] DType weight_dtype() const { return dtype == TorchDtype::kFloat32 ? DType::kF32 : DType::kBf16; }
  // The options of the run that is measured. It writes nothing.
  [[nodiscard]] GrpoOptions run() const {
    GrpoOptions options;
    options.output_dir.clear();
    options.num_generations = num_generations;
    options.per_device_train_batch_size = per_device_train_batch_size;
    options.gradient_accumulation_steps = gradient_accumulation_steps;
    options.max_completion_length = max_completion_length;
    options.max_staleness = max_staleness;
    options.beta = beta;
    options.max_tokens_per_micro_batch = max_tokens_per_micro_batch;
    options.gradient_checkpointing = gradient_checkpointing;
    options.optim = optim;
    options.gradient_dtype = gradient_dtype;
    options.device = device;
    options.gemm = gemm;
    options.num_processes = num_processes;
    options.learning_rate = 1e-6;
    return options;
  }
};

// A tokenizer in which every id of a vocabulary is the text of its number and a space.
Tokenizer numbered_tokenizer(std::int64_t vocabulary) {
  Json vocab = Json::object();
  for (std::int64_t id = 0; id < vocabulary; ++id) vocab[std::to_string(id) + " "] = id;
  return Tokenizer::from_json(Json{{"version", "1.0"},
                                   {"added_tokens", Json::array()},
                                   {"normalizer", nullptr},
                                   {"pre_tokenizer", nullptr},
                                   {"post_processor", nullptr},
                                   {"decoder", {{"type", "Fuse"}}},
                                   {"model", {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", Json::array()}}}}
                                  .dump());
}

PromptSet random_prompts(std::int64_t count, std::int64_t length, std::int64_t vocabulary) {
  const RandomStream random(1, "bench prompts");
  PromptSet prompts;
  std::uint64_t at = 0;
  for (std::int64_t p = 0; p < count; ++p) {
    Prompt prompt{.tokens = {}, .prefill = {}, .row = Json{{"prompt", std::to_string(p)}}.dump()};
    for (std::int64_t t = 0; t < length; ++t)
      prompt.tokens.push_back(static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocabulary))));
    prompts.add(prompt);
  }
  return prompts;
}

// The run of the options: as many prompts as a step has, a reward that is nearly random, and so many stop tokens that a
// token drawn uniformly is one of them with probability 1 / mean_completion_len.
GrpoRun random_run(const BenchGrpoOptions& given, const Job& job) {
  StepOptions shape;
  shape.model = given.model;
  shape.layers = given.layers;
  shape.dtype = given.dtype;
  const GrpoOptions options = given.run();
  std::unique_ptr<Model> model = open_shape(shape);
  const std::int64_t vocabulary = model->shape().vocab_size;
  GrpoRun run{.options = options,
              .options_json = "{}",
              .batch = grpo_batch(options, given.num_processes, {}),
              .initial = nullptr,
              .model = std::move(model),
              .tokenizer = numbered_tokenizer(vocabulary)};
  run.generation_config = "{}";
  for (std::int64_t id = 0; id < vocabulary; id += given.mean_completion_len)
    run.stop_token_ids.push_back(static_cast<TokenId>(id));
  run.dtype = given.weight_dtype();
  run.data_name = "random tokens";
  run.prompts = random_prompts(run.batch.prompts, given.prompt_len, vocabulary);
  run.rewards = {{"digits", "digits_reward", each([](const RewardInput& input) {
                    return std::optional<double>(
                        static_cast<double>(std::ranges::count(input.completion, '1')) /
                        static_cast<double>(std::max<std::size_t>(input.completion.size(), 1)));
                  }),
                  RewardScope::kCompletion}};
  run.reward_weights = {1.0};
  run.engine = rollout_engine(options, run.batch, given.prompt_len);
  check_positions(run.model->shape(), run.engine.max_model_len, "max_completion_length");
  run.job = job;
  run.total_steps = given.warmup_steps + given.steps + 1;  // the last measured step has one after it, too
  return run;
}

// Measures the share of the time in which a device has nothing to do: of a GPU by NVML, ten times a second; of the CPU,
// as the share of its threads' time that this process does not compute.
class IdleMeter {
 public:
  explicit IdleMeter(Device& device) : device_(device) {
    if (device.kind() != DeviceKind::kCpu) thread_ = std::thread([this] { sample(); });
  }
  IdleMeter(const IdleMeter&) = delete;
  IdleMeter& operator=(const IdleMeter&) = delete;
  ~IdleMeter() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }

  // Returns the share since the object was created, or nothing if it is not known.
  [[nodiscard]] std::optional<double> share() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
    if (device_.kind() != DeviceKind::kCpu)
      return samples_ > 0 ? std::optional(1 - busy_ / (100 * samples_)) : std::nullopt;
    const double busy = cpu_seconds() - cpu_begin_;
    return std::max(0.0, 1 - busy / (seconds_since(begin_) * static_cast<double>(thread_count())));
  }

 private:
  [[nodiscard]] static double cpu_seconds() {
    rusage usage{};
    (void)::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  void sample() {
    while (!ended_) {
      if (const std::optional<double> busy = usage_of(device_).busy_percent) {
        busy_ += *busy;
        ++samples_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  Device& device_;
  const Clock::time_point begin_ = Clock::now();
  const double cpu_begin_ = cpu_seconds();
  double busy_ = 0;  // this and samples_: written by the thread, read once it has ended
  double samples_ = 0;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

// Seconds of the phases of some steps, and what these steps did. All are sums over the steps.
struct GrpoFigures {
  GrpoTimes times;
  double update = 0;     // seconds
  double weights = 0;    // likewise, until the engine has the new weights
  double generated = 0;  // of completions
  double padding = 0;    // share of padding rows
  double stale = 0;      // share of stale tokens
  double steps = 0;
};

// A GRPO run on random weights, step by step.
class GrpoSteps {
 public:
  GrpoSteps(const GrpoRun& run, Workspace& workspace, Device& device)
      : run_(run),
        device_(device),
        collectives_(device, run.job),
        optimizer_(workspace, *run.model, optimizer_options(run.options)),
        source_(Engine(*run.model, run.tokenizer, workspace, run.engine)),
        task_(run, workspace, source_) {
    if (collectives_.data() != nullptr) optimizer_.join(*collectives_.data());
    task_.prepare();
    optimizer_.discard();
  }

  // Takes the next step and adds its times to the figures.
  void run(GrpoFigures& figures) {
    const auto begin = Clock::now();
    const std::int64_t tokens_before = task_.tokens_seen();
    const MetricValues values = task_.accumulate(step_);
    const auto update = Clock::now();
    optimizer_.sum_gradients();
    const UpdateResult result = optimizer_.update(run_.options.learning_rate, run_.options.max_grad_norm);
    device_.synchronize();
    if (!result.applied) throw Error("bench grpo", "the gradient is not finite", "another --model");
    const auto weights = Clock::now();
    task_.after_update(step_++);
    device_.synchronize();
    const auto end = Clock::now();
    const auto value_of = [&](std::string_view name) {
      const auto found = std::ranges::find(values, name, &std::pair<std::string, double>::first);
      return found == values.end() ? 0.0 : found->second;
    };
    for (const GrpoPhase& phase : kGrpoPhases) figures.times.*phase.seconds += value_of(phase.metric);
    const auto seconds = [](Clock::time_point from, Clock::time_point to) {
      return std::chrono::duration<double>(to - from).count();
    };
    figures.update += seconds(update, weights);
    figures.weights += seconds(weights, end);
    figures.times.rate.seconds += seconds(begin, end);
    figures.times.rate.tokens += static_cast<double>(task_.tokens_seen() - tokens_before);
    figures.generated += value_of("completions/mean_length") * static_cast<double>(run_.batch.completions);
    figures.padding += value_of("padding");
    figures.stale += value_of("sampling/stale_tokens");
    ++figures.steps;
  }

 private:
  const GrpoRun& run_;
  Device& device_;
  RunCollectives collectives_;
  Optimizer optimizer_;
  EngineRollout source_;
  GrpoTask task_;
  std::int64_t step_ = 0;
};

// Prints the figures and returns them as rows.
std::vector<ResultRow> print_figures(const BenchGrpoOptions& options, const GrpoRun& run, const GrpoFigures& figures,
                                     std::optional<double> idle) {
  const double steps = figures.steps;
  const double all = figures.times.rate.seconds;
  const std::string shape =
      text_of(options.model, ", ", run.batch.prompts, run.batch.prompts == 1 ? " prompt x " : " prompts x ",
              options.num_generations, " completions of up to ", options.max_completion_length, " tokens",
              options.max_staleness > 0 ? ", max_staleness 1" : "",
              options.num_processes > 1 ? text_of(", ", options.num_processes, " processes") : "");
  std::vector<ResultRow> rows;
  rows.push_back({"grpo", shape, figures.times.rate.tokens_per_second(), "tokens/s"});
  rows.push_back({"grpo", shape, 1e3 * all / steps, "ms"});
  std::printf("%s: %.0f tokens/s, step %.1f ms, %.0f tokens a completion\n", shape.c_str(), rows[0].figure,
              rows[1].figure, figures.generated / (steps * static_cast<double>(run.batch.completions)));
  double rest = all;
  const auto print = [&](const std::string& name, double seconds) {
    std::printf("  %-36s %10.1f ms %6.1f%%\n", name.c_str(), 1e3 * seconds / steps, 100 * seconds / all);
    rows.push_back({"grpo, " + name, shape, 1e3 * seconds / steps, "ms"});
    rest -= seconds;
  };
  for (const GrpoPhase& phase : kGrpoPhases) print(phase.name, figures.times.*phase.seconds);
  print("update", figures.update);
  print("weights", figures.weights);
  print("rest", rest);
  rows.push_back({"grpo, generation", shape, figures.generated / figures.times.generation, "tokens/s"});
  rows.push_back({"grpo, padding rows", shape, 100 * figures.padding / steps, "%"});
  std::printf("  generation %.0f tokens/s; padding %.1f%% of the rows of training", rows[rows.size() - 2].figure,
              rows.back().figure);
  if (options.max_staleness > 0) {
    rows.push_back({"grpo, stale tokens", shape, 100 * figures.stale / steps, "%"});
    std::printf("; %.1f%% of the tokens by older weights", rows.back().figure);
  }
  if (idle) {
    rows.push_back({"grpo, device idle", shape, 100 * *idle, "%"});
    std::printf("; device idle %.1f%% of the time", rows.back().figure);
  }
  std::printf("\n");
  return rows;
}

// Measures the steps of a rank and prints the figures of the first.
void measure(const BenchGrpoOptions& options, const Job& job, const std::string& command) {
  const GrpoRun run = random_run(options, job);
  Device& device = open_device(options.device);
  set_gemm_tuning(device, options.gemm.tuning());
  Workspace workspace = trace_run(run);
  check_fits(run.options, run.dtype, device, workspace.memory().total(), bytes_of(run));
  workspace.provide(kWeightStore, random_weights(*run.model, 1, run.dtype, device));
  workspace.allocate(device);
  if (workspace.has_store(kReferenceStore)) workspace.store(kReferenceStore).copy_from(workspace.store(kWeightStore));
  GrpoSteps steps(run, workspace, device);
  log_info(text_of(options.model, ": ", format_count(parameter_count(*run.model)), " parameters on ", device.name(),
                   ", ", format_bytes(device.allocated_bytes())));
  GrpoFigures warmup;
  for (std::int64_t step = 0; step < options.warmup_steps; ++step) steps.run(warmup);
  GrpoFigures figures;
  IdleMeter meter(device);
  for (std::int64_t step = 0; step < options.steps; ++step) steps.run(figures);
  const std::optional<double> idle = meter.share();
  if (job.is_first()) {
    const std::vector<ResultRow> rows = print_figures(options, run, figures, idle);
    if (!options.json.empty()) write_results(options.json, rows, device.name(), command);
  }
  job.barrier();
}

int grpo_bench(BenchGrpoOptions& options, const OptionInput& input, const std::string& command) {
  if (options.weight_dtype() == DType::kF32) {
    if (!input.was_set("optim")) options.optim = OptimizerType::kAdamw;
    if (!input.was_set("gradient_dtype")) options.gradient_dtype = GradientType::kFloat32;
  }
  register_operations();
  const JobPlace place = job_place();
  if (place.is_job()) options.num_processes = place.size;
  (void)grpo_batch(options.run(), options.num_processes, input);
  LocalRanks ranks;
  if (!place.is_job() && options.num_processes > 1)
    ranks = {.count = static_cast<int>(options.num_processes), .total = static_cast<int>(options.num_processes)};
  if (place.rank > 0) set_silent(true);         // rank 0 logs for all
  constexpr std::int64_t kAnswerSeconds = 600;  // ranks wait for the slowest one's generation
  return run_ranks(ranks, place, kAnswerSeconds, [&](const Job& job) {
    measure(options, job, command);
    return 0;
  });
}

}  // namespace

BenchKind bench_grpo() {
  return bench_kind("grpo", "complete GRPO steps on random weights, phase by phase", grpo_bench);
}

}  // namespace hone
