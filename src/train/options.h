// Options of the training commands. Names and defaults are those of transformers 4.52 and TRL 0.18 unless the help says
// otherwise. Keys of these tools that hone does not have are listed in train/foreign_keys.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device_memory.h"
#include "backend/device_option.h"
#include "core/dtype.h"
#include "core/option_set.h"
#include "core/options.h"
#include "data/source.h"
#include "tracker/tracker.h"
#include "train/expert_options.h"
#include "train/fp8_options.h"
#include "train/hub_options.h"
#include "train/input_options.h"
#include "train/lora_options.h"
#include "train/mesh.h"
#include "train/option_values.h"
#include "train/schedule.h"

namespace hone {

// Range of counts that are multiplied with each other; products of three of them fit into 64 bits.
constexpr Range kCount = within(1, 1'000'000);

// Settings of `hone plan`, which are not options of a run.
struct PlanSettings {
  bool asked = false;                  // nothing will be run, so neither output_dir nor data are required
  std::optional<DeviceMemory> device;  // memory of a GPU to plan for instead of the machine's device
};

struct TrainingOptions {
  PlanSettings plan;
  std::optional<DeviceMemory> agreed_memory;  // of a job: the least of its devices; not an option
  std::optional<std::int64_t> num_processes;
  std::int64_t ddp_timeout = 1800;
  LayoutChoice layout = LayoutChoice::kKeys;  // an option of pretrain and sft
  std::optional<std::int64_t> zero_stage;
  std::int64_t tensor_parallel_size = 1;
  bool sequence_parallel = false;
  std::int64_t pipeline_parallel_size = 1;
  std::int64_t virtual_pipeline_parallel_size = 1;
  std::int64_t expert_parallel_size = 1;
  std::int64_t context_parallel_size = 1;
  std::int64_t job_rank = 0;  // rank of this process, or of that which is planned; not an option
  std::int64_t per_device_train_batch_size = 8;
  std::int64_t per_device_eval_batch_size = 8;
  std::int64_t gradient_accumulation_steps = 1;
  std::optional<std::int64_t> max_tokens_per_micro_batch;
  double num_train_epochs = 3;
  std::int64_t max_steps = -1;
  double max_grad_norm = 1.0;
  Recomputation gradient_checkpointing = Recomputation::kAutomatic;
  std::optional<double> activation_memory_gib;
  bool activation_offloading = false;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  std::int64_t seed = 42;
  std::optional<std::int64_t> data_seed;
  bool dataloader_drop_last = false;
  DeviceChoice device = DeviceChoice::kAutomatic;
  GemmOptions gemm;
  Fp8Options fp8;

  OptimizerType optim = OptimizerType::kAdamw;
  std::string optim_args;
  GradientType gradient_dtype = GradientType::kFloat32;
  double learning_rate = 5e-5;
  double weight_decay = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  SchedulerType lr_scheduler_type = SchedulerType::kLinear;
  SchedulerKwargs lr_scheduler_kwargs;
  double warmup_ratio = 0;
  std::int64_t warmup_steps = 0;

  ExpertOptions experts;

  std::string output_dir;
  bool overwrite_output_dir = false;
  std::string resume_from_checkpoint;
  Interval logging_strategy = Interval::kSteps;
  double logging_steps = 10;
  bool logging_first_step = false;
  Interval eval_strategy = Interval::kNo;
  std::optional<double> eval_steps;
  bool eval_on_start = false;
  bool do_eval = false;
  SaveStrategy save_strategy = SaveStrategy::kSteps;
  double save_steps = 500;
  std::optional<std::int64_t> save_total_limit;
  bool save_only_model = false;
  bool load_best_model_at_end = false;
  std::string metric_for_best_model = "loss";
  std::optional<bool> greater_is_better;
  std::string run_name;
  bool metrics_block = false;
  std::vector<std::string> report_to;
  OptionSet keys_of_trackers = tracker_keys();  // options that the trackers declare in their folders
  std::vector<std::string> benchmarks;
  HubOptions hub;
  bool dry_run = false;
  std::string config_file;

  template <class Visitor>
  void fields(Visitor& v) {
    training_fields(v);
    optimizer_fields(v);
    experts.fields(v);
    v.run_only([&] { hub.fields(v); });
    output_fields(v);
  }

  // The option of commands whose layout can be searched.
  template <class Visitor>
  void layout_fields(Visitor& v) {
    v.group("Layout");
    v.run_only([&] {
      v("layout", layout,
        "auto: the first layout of hone plan for these processes, in place of the keys that divide a model, with "
        "micro-batches of as many sequences a step; a resumed run keeps that of its checkpoint. search: also a resumed "
        "run takes the first layout");
    });
  }

  // Returns true if the run evaluates at least once.
  [[nodiscard]] bool evaluates() const { return eval_strategy != Interval::kNo || eval_on_start || do_eval; }
  // Returns true if evaluations are compared with each other.
  [[nodiscard]] bool compares_evaluations() const {
    return load_best_model_at_end || save_strategy == SaveStrategy::kBest;
  }
  // Returns the processes of the job.
  [[nodiscard]] std::int64_t processes() const { return num_processes.value_or(1); }
  // Returns the sizes of all kinds of groups.
  [[nodiscard]] std::array<GroupSize, 4> group_sizes() const {
    return {{{"pipeline_parallel_size", pipeline_parallel_size, true, false},
             {"expert_parallel_size", expert_parallel_size, true, true},
             {"context_parallel_size", context_parallel_size, false, true},
             {"tensor_parallel_size", tensor_parallel_size, true, false}}};
  }
  // Returns the place of this process among all of the job.
  [[nodiscard]] Mesh mesh() const {
    return {static_cast<int>(job_rank), static_cast<int>(processes()),
            JobShape{.tensor_size = static_cast<int>(tensor_parallel_size),
                     .pipeline_size = static_cast<int>(pipeline_parallel_size),
                     .expert_size = static_cast<int>(expert_parallel_size),
                     .context_size = static_cast<int>(context_parallel_size)}};
  }
  // Returns the processes over which the optimizer states are divided.
  [[nodiscard]] std::int64_t shards() const { return zero_stage.value_or(0) > 0 ? mesh().data_size() : 1; }
  // Returns true if programs sum whole gradients over the processes.
  [[nodiscard]] bool sums_in_programs() const { return mesh().data_size() > 1 && !divides_gradients(); }
  // Return true if each process has the gradients, and the weights, of its share only.
  [[nodiscard]] bool divides_gradients() const { return shards() > 1 && zero_stage.value_or(0) >= 2; }
  [[nodiscard]] bool divides_weights() const { return shards() > 1 && zero_stage.value_or(0) >= 3; }
  // Returns the batches of an optimizer step, over all processes.
  [[nodiscard]] std::int64_t batches_per_step() const { return gradient_accumulation_steps * mesh().readers(); }
  // Returns the seed of the order of the data.
  [[nodiscard]] std::uint64_t order_seed() const { return static_cast<std::uint64_t>(data_seed.value_or(seed)); }

 private:
  static constexpr Range kRanks{.least = 1, .most = 1024};
  static constexpr Range kBelowOne{.least = 0, .most = 1, .most_excluded = true};

  template <class Visitor>
  void training_fields(Visitor& v) {
    v.group("Training");
    v("per_device_train_batch_size", per_device_train_batch_size, "Sequences per batch", kCount);
    v("per_device_eval_batch_size", per_device_eval_batch_size, "Sequences per batch of an evaluation", kCount);
    v("gradient_accumulation_steps", gradient_accumulation_steps, "Batches per optimizer step", kCount);
    v("max_tokens_per_micro_batch", max_tokens_per_micro_batch,
      "Tokens computed at a time, at least those of the longest sequence; unset: what the longest sequences of a batch "
      "have together",
      at_least(1));
    v("num_train_epochs", num_train_epochs, "Passes over the data; may be a fraction", above(0));
    v("max_steps", max_steps, "Optimizer steps; above 0 it overrides num_train_epochs", at_least(-1));
    v("max_grad_norm", max_grad_norm, "Largest norm of the gradient, which is scaled down to it; 0: no limit",
      at_least(0));
    v("gradient_checkpointing", gradient_checkpointing,
      "Recompute layers in the backward pass, except attention's results if they fit; auto recomputes only what does "
      "not fit");
    v("activation_memory_gib", activation_memory_gib, "Memory that auto may use for activations, in GiB", above(0));
    v("activation_offloading", activation_offloading,
      "Keep activations in host memory until the backward pass reads them; copies overlap with computation");
    v("on_nonfinite", on_nonfinite, "What to do if loss or gradient is NaN or infinite; skip leaves out the step");
    v("seed", seed, "Seed of shuffling, initialisation and sampling", at_least(0));
    v("data_seed", data_seed, "Seed of shuffling alone; unset: seed", at_least(0));
    v("dataloader_drop_last", dataloader_drop_last, "Leave out the last batch of an epoch if it is not full");
    v.run_only([&] { v("device", device, kDeviceHelp); });
    v("num_processes", num_processes,
      "Processes that train together, each on its own GPU or on the CPU; started on this machine unless torchrun, "
      "mpirun or srun started them; unset: config_file's, otherwise 1",
      kRanks);
    v.run_only([&] { group_fields(v); });
    gemm.fields(v);
    fp8.fields(v);
  }

  template <class Visitor>
  void group_fields(Visitor& v) {
    v("zero_stage", zero_stage,
      "1: each process has the optimizer states of its share of the weights, with the same results; 2: and their "
      "gradients; 3: and the weights, gathered layer by layer; 0: all is whole; unset: config_file's, otherwise 0",
      within(0, 3));
    v("tensor_parallel_size", tensor_parallel_size,
      "Processes that divide each layer (its heads, the channels of its MLP, the vocabulary) and compute the same "
      "batches; it divides num_processes, and zero_stage divides over the rest",
      kRanks);
    v("sequence_parallel", sequence_parallel,
      "A tensor group's processes divide the tokens of norms and of the residual stream, so that each keeps "
      "fewer activations; pretrain and sft only");
    v("pipeline_parallel_size", pipeline_parallel_size,
      "Stages of a pipeline: processes that have consecutive layers each and compute the same micro-batches one "
      "after the other; it divides num_processes, and the rest computes other batches",
      kRanks);
    v("virtual_pipeline_parallel_size", virtual_pipeline_parallel_size,
      "Ranges of layers (chunks) of each stage, in turn with those of others; they divide the waits by their number, "
      "and send and keep more; a step should have a multiple of pipeline_parallel_size micro-batches",
      kRanks);
    v("expert_parallel_size", expert_parallel_size,
      "Processes that divide the experts of mixtures, those of a process of tensor_parallel_size if that is set, and "
      "compute different tokens; the product of the two divides num_processes",
      kRanks);
    v("context_parallel_size", context_parallel_size,
      "Processes that divide the tokens of each batch and attend to each other's keys; it divides num_processes",
      kRanks);
    v("ddp_timeout", ddp_timeout, "Seconds after which a process that does not answer ends the run", at_least(1));
  }

  template <class Visitor>
  void optimizer_fields(Visitor& v) {
    v.group("Optimizer");
    v("optim", optim,
      "Optimizer; adamw_bf16, adamw_8bit: states of that width, no master weights, stochastic rounding; paged: states "
      "in host memory; muon: Muon for the matrices of the layers, AdamW for all other weights");
    v("optim_args", optim_args,
      "name=value,...: momentum, nesterov and master_weights of sgd and muon, dampening of sgd, ns_steps, adjust_lr_fn "
      "(match_rms_adamw, original) and lr_ratio of muon");
    v("gradient_dtype", gradient_dtype, "Dtype in which gradients of bfloat16 matrices are accumulated");
    v("learning_rate", learning_rate, "Peak learning rate", at_least(0));
    v("weight_decay", weight_decay, "Weight decay of all weights except norms and biases", at_least(0));
    v("adam_beta1", adam_beta1, "Decay rate of the first moment", kBelowOne);
    v("adam_beta2", adam_beta2, "Decay rate of the second moment", kBelowOne);
    v("adam_epsilon", adam_epsilon, "Added to the square root of the second moment", above(0));
    v("lr_scheduler_type", lr_scheduler_type, "Schedule of the learning rate");
    v("lr_scheduler_kwargs", lr_scheduler_kwargs, "");
    v("warmup_ratio", warmup_ratio, "Share of the steps over which the learning rate rises from 0", within(0, 1));
    v("warmup_steps", warmup_steps, "Steps of the warm-up; above 0 it overrides warmup_ratio", at_least(0));
  }

  template <class Visitor>
  void output_fields(Visitor& v) {
    v.group("Output");
    v.run_only([&] {
      v("output_dir", output_dir, "Folder of checkpoints, metrics and the final model");
      v("overwrite_output_dir", overwrite_output_dir,
        "Start from the beginning although output_dir holds a checkpoint");
      v("resume_from_checkpoint", resume_from_checkpoint,
        "Folder of a checkpoint, or true for the latest; unset: the latest in output_dir, if there is one");
    });
    v("logging_strategy", logging_strategy, "When to log; no logs only the last step");
    v("logging_steps", logging_steps, "Steps between logged lines; below 1: a share of the run", above(0));
    v("logging_first_step", logging_first_step, "Log the first step too");
    v("eval_strategy", eval_strategy, "When to evaluate");
    v("eval_steps", eval_steps, "Steps between evaluations; below 1: a share of the run; unset: logging_steps",
      above(0));
    v("eval_on_start", eval_on_start, "Evaluate before the first step too");
    v("do_eval", do_eval, "Evaluate after the last step if eval_strategy is no");
    v.run_only([&] {
      v("benchmarks", benchmarks,
        "Tasks of hone eval that each saved checkpoint is scored on: aime24, aime25, math_500, gpqa, lcb, lcb_v4, all; "
        "TASK=FILE: on your problems");
    });
    v("save_strategy", save_strategy,
      "When to save a checkpoint; best saves after each evaluation that is the best so far");
    v("save_steps", save_steps, "Steps between checkpoints; below 1: a share of the run", above(0));
    v("save_total_limit", save_total_limit, "Checkpoints to keep; the oldest are deleted first", at_least(1));
    v("save_only_model", save_only_model, "Save no optimizer state; such a checkpoint cannot be resumed");
    v("load_best_model_at_end", load_best_model_at_end,
      "Leave the weights of the checkpoint whose evaluation was the best, which is never deleted");
    v("metric_for_best_model", metric_for_best_model,
      "Metric by which evaluations are compared, with or without eval_");
    v("greater_is_better", greater_is_better,
      "Whether the greater value is better; unset: the lower of a loss, otherwise the greater");
    v.run_only([&] {
      v("run_name", run_name, "Name of the run in its log and in each row of metrics.jsonl");
      v("metrics_block", metrics_block, "Log a step as a block of lines instead of one line");
      v("report_to", report_to,
        "Trackers that receive the metrics, in addition to metrics.jsonl: " + tracker_list() + ", all, none");
      keys_of_trackers.fields(v);
      v("dry_run", dry_run, "Check and print everything up to the first step; train nothing, write nothing");
      v("config_file", config_file,
        "accelerate's YAML: processes, and how DeepSpeed, FSDP or Megatron-LM divide the model, for keys that are "
        "unset");
    });
    v.alias("evaluation_strategy", "eval_strategy");
  }
};

struct PretrainOptions : ModelOptions, DatasetOptions, TrainingOptions {
  std::string model_config_path;
  std::string config_overrides;
  std::string dataset_text_field = "text";
  std::int64_t block_size = 512;
  WindowSampling sampling = WindowSampling::kBlocks;
  SampleBy sample_by = SampleBy::kDocument;
  double test_split_size = 0;

  PretrainOptions() { learning_rate = 5e-4; }

  template <class Visitor>
  void fields(Visitor& v) {
    ModelOptions::fields(v);
    v("model_config_path", model_config_path, "config.json of a model to initialise, instead of model_name_or_path");
    v("config_overrides", config_overrides, "key=value,...: values that replace those in model_config_path");
    DatasetOptions::fields(v);
    v("dataset_text_field", dataset_text_field, "Column of plain text");
    v("block_size", block_size, "Tokens per training sequence", at_least(2));
    v("sampling", sampling, "blocks: the text cut at block_size, shuffled; windows: drawn anywhere in it");
    v("sample_by", sample_by, "What is one document in a text file");
    v("test_split_size", test_split_size, "Share of the text, from its end, that is held out for evaluation",
      within(0, 0.9));
    layout_fields(v);
    TrainingOptions::fields(v);
  }
};

// TRL's dataset_kwargs.
struct DatasetKwargs {
  bool skip_prepare_dataset = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v("skip_prepare_dataset", skip_prepare_dataset, "The rows' input_ids are trained on as they are, however long");
  }
};

struct SftOptions : ModelOptions, DatasetOptions, TrainingOptions, LoraOptions {
  std::string chat_template;
  std::string eos_token;
  std::string system_prompt;
  std::string dataset_text_field = "text";
  std::string dataset_prompt_column;
  DatasetKwargs dataset_kwargs;
  std::optional<std::int64_t> max_length = 1024;
  bool packing = false;
  std::optional<bool> eval_packing;
  PackingStrategy packing_strategy = PackingStrategy::kBfd;
  std::optional<bool> completion_only_loss;
  bool assistant_only_loss = false;
  SftLoss loss_type = SftLoss::kNll;

  SftOptions() { learning_rate = 2e-5; }

  template <class Visitor>
  void fields(Visitor& v) {
    ModelOptions::fields(v);
    v("chat_template", chat_template, "Jinja template, as text or a file, instead of the model's");
    v("eos_token", eos_token, "Token that ends a turn, instead of the tokenizer's");
    DatasetOptions::fields(v);
    v("dataset_text_field", dataset_text_field, "Column of plain text");
    v("dataset_prompt_column", dataset_prompt_column, "Column of prompts; unset: prompt, problem or question");
    v("system_prompt", system_prompt, "System message of conversations that have none");
    v("dataset_kwargs", dataset_kwargs, "");
    v("max_length", max_length, "Tokens per sequence; longer ones are cut; null: no limit", at_least(2));
    v("packing", packing, "Put several documents into one sequence, without attention between them");
    v("eval_packing", eval_packing, "Packing of the evaluation data; unset: as packing");
    v("packing_strategy", packing_strategy,
      "Method of packing; bfd cuts documents at max_length, bfd_split splits them there, wrapped splits one stream");
    v("completion_only_loss", completion_only_loss, "Loss on completions only; unset: if there are prompts");
    v("assistant_only_loss", assistant_only_loss, "Loss on assistant turns only");
    v("loss_type", loss_type, "nll; dft: each token's loss times its probability, held constant");
    LoraOptions::fields(v);
    v.alias("max_seq_length", "max_length");
    layout_fields(v);
    TrainingOptions::fields(v);
  }
};

// Throw Error, which begins with a place recorded in `input`, if values contradict each other or one is missing.
void check_options(const PretrainOptions& options, const OptionInput& input);
void check_options(const SftOptions& options, const OptionInput& input);
// Checks the options that all commands share. needs_model: model_name_or_path must be set.
void check_training(const ModelOptions& model, const DatasetOptions& data, const TrainingOptions& training,
                    bool needs_model, const OptionInput& input);

// Returns the dtype of weights and activations, or nullopt for that of the checkpoint.
[[nodiscard]] std::optional<DType> weight_dtype(const ModelOptions& options);
// Returns the number of steps between events; a value below 1 is a share of the run and is rounded up.
[[nodiscard]] std::int64_t interval_steps(double value, std::int64_t total_steps);
[[nodiscard]] Schedule make_schedule(const TrainingOptions& options, std::int64_t total_steps);

}  // namespace hone
