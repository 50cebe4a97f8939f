#include "cli/bench/train.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "backend/device_option.h"
#include "cli/bench/models.h"
#include "cli/command.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/log.h"
#include "core/random.h"
#include "core/strings.h"
#include "model/registry.h"
#include "train/fit.h"
#include "train/loss_program.h"
#include "train/memory.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/setup.h"

namespace hone {
namespace {

struct BenchTrainOptions {
  std::string model = "qwen2.5-0.5b";
  std::int64_t layers = 0;
  std::int64_t batch_size = 1;
  std::int64_t seq_len = 1024;
  std::int64_t gradient_accumulation_steps = 1;
  Recomputation gradient_checkpointing = Recomputation::off;
  bool activation_offloading = false;
  TorchDtype dtype = TorchDtype::bfloat16;
  OptimizerType optim = OptimizerType::adamw_bf16;
  GradientType gradient_dtype = GradientType::bfloat16;
  double seconds = 20;
  double warmup_seconds = 5;
  double peak_tflops = 989;
  bool profile = false;
  DeviceChoice device = DeviceChoice::automatic;
  std::string output;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Training step");
    v("model", model, "One of the known shapes, or a config.json");
    v("layers", layers, "Layers in place of the model's; 0: the model's", at_least(0));
    v("batch_size", batch_size, "Sequences a micro-step", at_least(1));
    v("seq_len", seq_len, "Tokens of a sequence", at_least(1));
    v("gradient_accumulation_steps", gradient_accumulation_steps, "Micro-steps an optimizer step", at_least(1));
    v("gradient_checkpointing", gradient_checkpointing, "Recompute activations by layer; auto: as few as fit");
    v("activation_offloading", activation_offloading, "Keep activations in the host's memory meanwhile");
    v("dtype", dtype, "Type of the weights");
    v("optim", optim, "Optimizer; beside float32: adamw_torch");
    v("gradient_dtype", gradient_dtype, "What gradients of matrices are summed in; beside float32: float32");
    v("device", device, kDeviceHelp);
    v.group("Measuring");
    v("seconds", seconds, "Time measured, after the warm-up", above(0));
    v("warmup_seconds", warmup_seconds, "Steps before, not measured", at_least(0));
    v("peak_tflops", peak_tflops, "Of the device, for the MFU", above(0));
    v("profile", profile, "Time by operation instead, each node waited for");
    v("output", output, "JSON file to write the figures to");
  }
};

const CommandText kText{.name = "bench train", .summary = {}};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::unique_ptr<Model> open_shape(const BenchTrainOptions& options) {
  const std::string text =
      options.model.ends_with(".json") ? read_file(options.model) : bench_model_config(options.model);
  Json config = parse_json(text, options.model);
  if (options.layers > 0) config["num_hidden_layers"] = options.layers;
  return family_registry().create(config);
}

HostBatch random_batch(const BenchTrainOptions& options, std::int64_t vocabulary) {
  const RandomStream random(1, "bench tokens");
  HostBatch batch;
  const std::int64_t tokens = options.batch_size * options.seq_len;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto id = random.below(static_cast<std::uint64_t>(t), static_cast<std::uint64_t>(vocabulary));
    batch.tokens.push_back(static_cast<TokenId>(id));
    batch.positions.push_back(static_cast<std::int32_t>(t % options.seq_len));
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool last = (t + 1) % options.seq_len == 0;
    batch.targets.push_back(last ? -1 : batch.tokens[static_cast<std::size_t>(t) + 1]);
    batch.loss_weights.push_back(last ? 0.0f : 1.0f);
    if (last) batch.cu_seqlens.push_back(static_cast<std::int32_t>(t + 1));
  }
  batch.target_tokens = tokens - options.batch_size;
  return batch;
}

// A model, its optimizer and their programs on a device, fed with one batch.
class Bench {
 public:
  explicit Bench(const BenchTrainOptions& options)
      : options_(options),
        model_(open_shape(options)),
        device_(open_device(options.device)),
        dtype_(options.dtype == TorchDtype::float32 ? DType::f32 : DType::bf16),
        batch_(random_batch(options, model_->shape().vocab_size)),
        program_(traced(training_options(), memory_)),
        arena_(std::make_shared<Arena>(fitting_device())),
        weights_(random_weights(*model_, 1, dtype_, device_)),
        optimizer_(*model_, weights_, arena_, optimizer_options(training_options())),
        offloaded_(offload_store(device_, program_)),
        training_(std::move(program_), arena_,
                  {.weights = &weights_, .gradients = &optimizer_.gradients(), .states = &offloaded_}) {
    (void)arena_->base();
    check_plan(device_, 0, memory_);
  }

  double step() {
    const double weight = 1.0 / static_cast<double>(batch_.target_tokens * options_.gradient_accumulation_steps);
    LossLaunches launches(training_, static_cast<std::size_t>(options_.gradient_accumulation_steps));
    for (std::int64_t i = 0; i < options_.gradient_accumulation_steps; ++i) launches.launch(batch_, weight);
    optimizer_.update(1e-5, 1.0);
    return launches.sums().loss;
  }

  [[nodiscard]] std::int64_t tokens_per_step() const {
    return batch_.token_count() * options_.gradient_accumulation_steps;
  }
  [[nodiscard]] const Model& model() const { return *model_; }
  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] Executable& training() { return training_; }
  // What the device has less than before the bench took anything, beyond its plan: libraries and recorded launches.
  [[nodiscard]] std::int64_t bytes_beyond_plan() const {
    return static_cast<std::int64_t>(available_before_) -
           static_cast<std::int64_t>(memory_of(device_).available + memory_.total());
  }
  [[nodiscard]] Optimizer& optimizer() { return optimizer_; }

  // 6 FLOPs a parameter outside the input embedding, and 6 x layers x width x length.
  [[nodiscard]] double flops_per_token() const {
    const ModelShape shape = model_->shape();
    double parameters = static_cast<double>(parameter_count(*model_));
    if (model_->head() != "embedding") {
      parameters -= static_cast<double>(weights_.type("embedding").elements());
    }
    const double attention = static_cast<double>(shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim);
    return 6 * parameters + 6 * attention * static_cast<double>(options_.seq_len);
  }

 private:
  [[nodiscard]] TrainingOptions training_options() const {
    TrainingOptions training;
    training.gradient_checkpointing = options_.gradient_checkpointing;
    training.activation_offloading = options_.activation_offloading;
    training.optim = options_.optim;
    training.gradient_dtype = options_.gradient_dtype;
    training.device = options_.device;
    training.per_device_train_batch_size = options_.batch_size;
    return training;
  }

  // The program of a micro-step, and what the bench then takes.
  [[nodiscard]] Program traced(const TrainingOptions& training, MemoryBreakdown& memory) const {
    const OptimizerOptions optimizer = optimizer_options(training);
    add_training_state(memory, *model_, dtype_, optimizer);
    const std::int64_t rows = training.per_device_train_batch_size;
    const LossProgramOptions options = loss_program_options(training, {rows * options_.seq_len, rows}, dtype_, memory);
    Program program = trace_training(*model_, options);
    memory.add_program(plan_memory(program, options.device));
    memory.add_program(plan_memory(Optimizer::trace_update(*model_, dtype_, optimizer), options.device));
    return program;
  }

  // Throws Error where the device has not enough memory.
  [[nodiscard]] Device& fitting_device() const {
    check_fits(training_options(), dtype_, device_, memory_.total(), [&](const TrainingOptions& training) {
      MemoryBreakdown memory;
      (void)traced(training, memory);
      return memory.total();
    });
    return device_;
  }

  const BenchTrainOptions& options_;
  std::unique_ptr<Model> model_;
  Device& device_;
  DType dtype_;
  HostBatch batch_;
  std::size_t available_before_ = memory_of(device_).available;
  MemoryBreakdown memory_;
  Program program_;  // until training_ has it
  std::shared_ptr<Arena> arena_;
  TensorStore weights_;
  Optimizer optimizer_;
  TensorStore offloaded_;
  Executable training_;
};

constexpr int kProfiledSteps = 3;

// One line an operation; `seconds` by node, of `runs` runs.
void print_operations(const Program& program, const std::vector<double>& seconds, double runs, const char* what) {
  struct Sum {
    double seconds = 0;
    Cost cost;
    std::int64_t nodes = 0;
  };
  std::map<std::string, Sum> sums;
  double total = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const Node& node = program.nodes()[i];
    Sum& sum = sums[std::string(node.op->name())];
    std::vector<Type> outputs;
    for (const ValueId id : node.outputs) outputs.push_back(program.value(id).type);
    const Cost cost = node.op->cost(program.types_of(node.inputs), outputs, node.attributes);
    sum.seconds += seconds[i] / runs;
    sum.cost.flops += cost.flops;
    sum.cost.bytes_read += cost.bytes_read + cost.bytes_written;
    ++sum.nodes;
    total += seconds[i] / runs;
  }
  std::vector<std::pair<std::string, Sum>> order(sums.begin(), sums.end());
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::printf("%-28s %6s %10s %7s %10s %10s\n", "operation", "nodes", "ms", "share", "TFLOP/s", "GB/s");
  for (const auto& [name, sum] : order) {
    std::printf("%-28s %6lld %10.3f %6.1f%% %10.1f %10.0f\n", name.c_str(), static_cast<long long>(sum.nodes),
                sum.seconds * 1e3, 100 * sum.seconds / total, sum.cost.flops / sum.seconds * 1e-12,
                sum.cost.bytes_read / sum.seconds * 1e-9);
  }
  std::printf("%-28s %6zu %10.3f\n\n", what, seconds.size(), total * 1e3);
}

void print_profile(Bench& bench, std::int64_t micro_steps) {
  std::vector<double> training;
  std::vector<double> update;
  bench.training().set_profile(&training);
  bench.optimizer().set_profile(&update);
  for (int i = 0; i < kProfiledSteps; ++i) bench.step();
  bench.training().set_profile(nullptr);
  bench.optimizer().set_profile(nullptr);
  print_operations(bench.training().program(), training, kProfiledSteps * static_cast<double>(micro_steps),
                   "forward and backward");
  print_operations(bench.optimizer().executable().program(), update, kProfiledSteps, "update");
}

}  // namespace

std::string bench_train_keys() {
  BenchTrainOptions defaults;
  return option_help(OptionTable(defaults));
}

int bench_train(std::span<const std::string> arguments) {
  BenchTrainOptions options;
  const OptionInput input = read_options(OptionTable(options), arguments);
  apply_input(kText, input);
  const auto start = Clock::now();
  Bench bench(options);
  double loss = bench.step();
  bench.device().synchronize();
  const double first_step = seconds_since(start);
  log_info(text_of(options.model, ": ", format_count(parameter_count(bench.model())), " parameters on ",
                   bench.device().name(), ", ", format_bytes(bench.device().allocated_bytes()), ", first step after ",
                   format_duration(first_step), ", loss ", loss));
  for (const auto begin = Clock::now(); seconds_since(begin) < options.warmup_seconds;) loss = bench.step();
  if (options.profile) {
    print_profile(bench, options.gradient_accumulation_steps);
    return 0;
  }
  std::int64_t steps = 0;
  const auto begin = Clock::now();
  while (steps == 0 || seconds_since(begin) < options.seconds) {
    loss = bench.step();
    ++steps;
  }
  bench.device().synchronize();
  const double seconds = seconds_since(begin);
  const double rate = static_cast<double>(steps * bench.tokens_per_step()) / seconds;
  const double tflops = rate * bench.flops_per_token() * 1e-12;
  std::printf(
      "%s batch %lld x %lld, accumulation %lld: %.0f tokens/s, %.1f TFLOP/s, MFU %.1f%%, step %.1f ms, %s, loss %.3f\n",
      options.model.c_str(), static_cast<long long>(options.batch_size), static_cast<long long>(options.seq_len),
      static_cast<long long>(options.gradient_accumulation_steps), rate, tflops, 100 * tflops / options.peak_tflops,
      seconds / static_cast<double>(steps) * 1e3, format_bytes(bench.device().allocated_bytes()).c_str(), loss);
  if (bench.device().kind() != DeviceKind::cpu) {
    log_info(text_of("the device's free memory fell by the plan and ", bench.bytes_beyond_plan() / (1 << 20),
                     " MiB for libraries and recorded launches"));
  }
  if (!options.output.empty()) {
    write_json(options.output, Json{{"model", options.model},
                                    {"device", bench.device().name()},
                                    {"batch_size", options.batch_size},
                                    {"seq_len", options.seq_len},
                                    {"gradient_accumulation_steps", options.gradient_accumulation_steps},
                                    {"tokens_per_second", rate},
                                    {"tflops", tflops},
                                    {"bytes", bench.device().allocated_bytes()},
                                    {"first_step_seconds", first_step}});
  }
  return 0;
}

}  // namespace hone
