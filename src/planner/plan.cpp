#include "planner/plan.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "backend/measured_rates.h"
#include "core/error.h"
#include "core/printed.h"
#include "core/strings.h"
#include "model/stage_model.h"
#include "ops/registry.h"
#include "planner/sequences.h"
#include "train/launch.h"
#include "train/memory_fit.h"
#include "train/stage_programs.h"

namespace hone {
namespace {

// The part of the model that a weight counts to: "layers.3.mlp.down" -> "mlp", "layers.3.input_norm" -> "norms".
// Weights outside of layers are a part by themselves: "embedding" -> "embedding".
std::string part_of(const std::string& weight) {
  if (weight.find("norm") != std::string::npos) return "norms";
  if (weight.find(".attention.") != std::string::npos) return "attention";
  if (weight.find(".mlp.") != std::string::npos) return "mlp";
  return weight;
}

void add_model(RunPlan& plan, const Model& model) {
  for (const WeightSpec& spec : model.weights()) {
    std::int64_t elements = 1;
    for (const std::int64_t size : spec.shape) elements *= size;
    const std::string part = spec.in_folder ? part_of(spec.name) : "adapter";
    bool found = false;
    for (auto& [name, count] : plan.parameters) {
      if (name != part) continue;
      count += elements;
      found = true;
    }
    if (!found) plan.parameters.emplace_back(part, elements);
  }
}

void add_cost(RunPlan& plan, const Program& program) {
  const Cost cost = program.cost();
  plan.flops_per_micro_batch += cost.flops;
  plan.bytes_per_micro_batch += cost.bytes_read + cost.bytes_written;
}

// Adds the roofline time of the program. A device given only by its memory size (options.plan.device) has no known
// rates, so its plan has no time.
void add_time(RunPlan& plan, const Program& program, const TrainingOptions& options, DType dtype) {
  if (options.plan.device) return;
  const DeviceModel model = device_model(open_device(options.device));
  const std::optional<DeviceLimits> limits = limits_of(model, dtype);
  if (!limits) return;
  for (const Node& node : program.nodes()) {
    if (node.op->is_view()) continue;
    const Cost cost = program.cost(node);
    plan.seconds_per_micro_batch += limits->floor(cost.flops, cost.bytes_read + cost.bytes_written);
  }
  const bool measured =
      model.flops(dtype).source == RateSource::kMeasured && model.copy_bytes.source == RateSource::kMeasured;
  plan.rates = measured ? "measured" : "built-in";
}

// Plans the run for a GPU of `total` bytes and collects the changes that reduce its memory until it fits. A later
// change of a key replaces an earlier one.
DeviceFit fit_gpu(std::size_t total, const TrainingOptions& options, DType dtype, const RunBytes& run) {
  TrainingOptions there = options;
  there.plan.device = memory_of_gpu(total);
  const std::size_t available = there.plan.device->available;
  DeviceFit fit{.memory = total, .bytes = run.with(there), .changes = {}};
  for (FitChange& change : changes_to_fit(there, dtype, available, fit.bytes, run)) {
    fit.bytes = change.bytes;
    const std::string key = change.text.substr(0, change.text.find(':') + 1);
    std::erase_if(fit.changes, [&](const std::string& earlier) { return earlier.starts_with(key); });
    fit.changes.push_back(std::move(change.text));
  }
  fit.fits = fit.bytes <= available;
  return fit;
}

std::string device_name(const TrainingOptions& options) {
  if (!options.plan.device) return open_device(options.device).name();
  return text_of("a GPU of ", format_bytes(options.plan.device->total));
}

void add_fits(RunPlan& plan, const TrainingOptions& options, DType dtype, std::span<const std::size_t> gpus,
              const RunBytes& run) {
  plan.device = device_name(options);
  plan.fit = memory_fit_text(options, dtype, device_memory(options), plan.memory.total(), run);
  for (const std::size_t total : gpus) plan.devices.push_back(fit_gpu(total, options, dtype, run));
}

}  // namespace

namespace {

// The plan of one process, without the number of steps.
RunPlan plan_process(std::string command, const LanguageSizes& sizes, const TrainingOptions& options,
                     std::span<const std::size_t> gpus) {
  const Workspace workspace = trace_run(sizes, options);
  RunPlan plan{.command = std::move(command),
               .dtype = std::string(name_of(sizes.dtype)),
               .parameters = {},
               .memory = workspace.memory()};
  plan.tokens_per_micro_batch = training_shape(sizes, options).limits.tokens;
  add_model(plan, sizes.model->whole());
  for (const std::string& program : micro_batch_programs(*sizes.model)) {
    add_cost(plan, workspace.program(program));
    add_time(plan, workspace.program(program), options, sizes.dtype);
  }
  add_fits(plan, options, sizes.dtype, gpus,
           {.with = [&](const TrainingOptions& changed) { return trace_run(sizes, changed).memory().total(); },
            .micro_batch = token_range(sizes, options)});
  return plan;
}

// The plan of a pipeline, whose stages differ: that of the stage that takes the most memory.
RunPlan plan_stages(const std::string& command, LanguageSizes sizes, TrainingOptions options,
                    std::span<const std::size_t> gpus) {
  const StageModel& own = *sizes.model->stage();
  const int stages = own.stages();
  const auto plan_stage = [&](int stage, std::span<const std::size_t> on) {
    const std::unique_ptr<StageModel> model = own.other(stage);
    sizes.model = model.get();
    options.job_rank = options.mesh().rank_of(stage, 0, 0);
    RunPlan plan = plan_process(command, sizes, options, on);
    const std::int64_t layers = own.shape().num_hidden_layers + (own.predicts_further() ? 1 : 0);
    StagePlan each{.bytes = plan.memory.total()};
    for (int chunk = 0; chunk < model->chunks(); ++chunk) {
      const StageCut& cut = *model->cut(chunk);
      const auto first = cut.first_layers.begin() + cut.stage;
      each.layers.emplace_back(*first, cut.is_last() ? layers : *(first + 1));
    }
    plan.stages = {std::move(each)};
    return plan;
  };
  std::vector<StagePlan> all;
  all.reserve(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) all.push_back(plan_stage(stage, {}).stages[0]);
  const auto largest = std::ranges::max_element(all, {}, &StagePlan::bytes) - all.begin();
  RunPlan plan = plan_stage(static_cast<int>(largest), gpus);
  plan.stages = std::move(all);
  plan.largest_stage = static_cast<std::size_t>(largest);
  return plan;
}

// The plan of a run without its number of steps.
RunPlan plan_sizes(std::string command, const LanguageSizes& sizes, const TrainingOptions& options,
                   std::span<const std::size_t> gpus) {
  if (sizes.model->stage() != nullptr) return plan_stages(command, sizes, options, gpus);
  return plan_process(std::move(command), sizes, options, gpus);
}

RunPlan plan_sizes(const GrpoSizes& sizes, std::span<const std::size_t> gpus) {
  const Workspace workspace = trace_run(sizes, *sizes.options);
  RunPlan plan{
      .command = "grpo", .dtype = std::string(name_of(sizes.dtype)), .parameters = {}, .memory = workspace.memory()};
  plan.tokens_per_micro_batch = micro_batch_shape(sizes, *sizes.options).limits.tokens;
  add_model(plan, *sizes.model);
  add_cost(plan, workspace.program(kPolicyProgram));
  add_time(plan, workspace.program(kPolicyProgram), *sizes.options, sizes.dtype);
  add_fits(plan, *sizes.options, sizes.dtype, gpus,
           {.with = [&](const TrainingOptions& changed) { return trace_run(sizes, changed).memory().total(); },
            .micro_batch = token_range(sizes, *sizes.options)});
  return plan;
}

// Plans a language-modeling run whose data is unknown. `length` is the number of tokens of each sequence, `documents`
// the largest number of documents in a sequence, `key` the option that sets the length.
RunPlan plan_language_sketch(std::string command, const TrainingOptions& options, LanguageSizes sizes,
                             std::int64_t length, std::int64_t documents, std::string_view key,
                             std::span<const std::size_t> gpus) {
  check_positions(sizes.model->shape(), length, key);
  const BatchLimits sequence{.tokens = length, .documents = documents};
  sizes.steps = equal_steps(options.per_device_train_batch_size, options.gradient_accumulation_steps, sequence);
  if (options.evaluates()) sizes.eval_steps = equal_steps(options.per_device_eval_batch_size, 1, sequence);
  RunPlan plan = plan_sizes(std::move(command), sizes, options, gpus);
  plan.steps = std::max<std::int64_t>(options.max_steps, 0);
  return plan;
}

// Returns true if this build has no CUDA kernels, so plans for GPUs use the workspace sizes of the CPU kernels.
bool lacks_gpu_kernels() {
  const KernelRegistry& kernels = kernel_registry();
  return &kernels.get_for_planning("adamw", DeviceKind::kCuda) == &kernels.get("adamw", DeviceKind::kCpu);
}

std::string device_table(std::span<const DeviceFit> devices) {
  std::string text = "on a GPU of\n";
  for (const DeviceFit& device : devices) {
    const std::string keys = join(device.changes, ", ");
    const std::string answer = !device.fits   ? keys.empty() ? "does not fit" : "does not fit even with " + keys
                               : keys.empty() ? "fits"
                                              : "fits with " + keys;
    text += printed("  %4.0f GiB  takes %11s  ", static_cast<double>(device.memory) / 0x1p30,
                    format_bytes(device.bytes).c_str()) +
            answer + "\n";
  }
  if (lacks_gpu_kernels())
    text +=
        "  (this build has no GPU kernels: their workspaces are assumed to be as large as those of the CPU kernels)\n";
  return text;
}

}  // namespace

RunPlan plan_run(const LanguageRun& run, std::span<const std::size_t> gpus) {
  RunPlan plan = plan_sizes(run.command, sizes_of(run), run.options, gpus);
  plan.steps = run.total_steps;
  return plan;
}

RunPlan plan_run(const GrpoRun& run, std::span<const std::size_t> gpus) {
  RunPlan plan = plan_sizes(sizes_of(run), gpus);
  plan.steps = run.total_steps;
  return plan;
}

RunPlan plan_sketch(const PretrainOptions& options, ModelSketch sketch, std::span<const std::size_t> gpus) {
  prepare_experts(*sketch.model, options.experts, false, kPretrainBiasSpeed);
  const std::unique_ptr<Model> model = divided_model(options, std::move(sketch.model));
  return plan_language_sketch("pretrain", options,
                              {.model = model.get(), .dtype = weight_dtype(options).value_or(sketch.dtype)},
                              options.block_size, documents_in(options.block_size), "block_size", gpus);
}

RunPlan plan_sketch(const SftOptions& options, ModelSketch sketch, std::span<const std::size_t> gpus) {
  prepare_experts(*sketch.model, options.experts, options.use_peft);
  const std::unique_ptr<Model> model = divided_model(options, with_adapter(std::move(sketch.model), options, options));
  const LanguageSizes sizes{
      .model = model.get(), .dtype = weight_dtype(options).value_or(sketch.dtype), .loss = options.loss_type};
  const std::int64_t length = options.max_length.value_or(model->shape().max_position_embeddings);
  return plan_language_sketch("sft", options, sizes, length, options.packing ? documents_in(length) : 1, "max_length",
                              gpus);
}

RunPlan plan_sketch(const GrpoOptions& options, const OptionInput& input, ModelSketch sketch,
                    std::span<const std::size_t> gpus) {
  prepare_experts(*sketch.model, options.experts, options.use_peft);
  const std::unique_ptr<Model> model = divided_model(options, with_adapter(std::move(sketch.model), options, options));
  const GrpoBatch batch = grpo_batch(options, options.mesh().data_size(), input);
  const std::int64_t positions = model->shape().max_position_embeddings;
  const std::int64_t prompt =
      options.max_prompt_length.value_or(std::max<std::int64_t>(positions - options.max_completion_length, 1));
  check_positions(model->shape(), prompt + options.max_completion_length, "max_prompt_length + max_completion_length");
  RunPlan plan = plan_sizes({.model = model.get(),
                             .dtype = weight_dtype(options).value_or(sketch.dtype),
                             .options = &options,
                             .batch = batch,
                             .engine = rollout_engine(options, batch, prompt),
                             .evaluates = options.evaluates()},
                            gpus);
  plan.steps = std::max<std::int64_t>(options.max_steps, 0);
  return plan;
}

std::string to_text(const RunPlan& plan) {
  std::int64_t total = 0;
  for (const auto& [name, count] : plan.parameters) total += count;
  std::string text = printed("parameters, in %s\n", plan.dtype.c_str());
  for (const auto& [name, count] : plan.parameters) {
    text += printed("  %-28s %16s\n", name.c_str(), format_count(count).c_str());
  }
  text += printed("  %-28s %16s\n", "total", format_count(total).c_str());
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    std::vector<std::string> ranges;
    for (const auto& [first, end] : stage.layers) ranges.push_back(text_of(first, " to ", end - 1));
    text += text_of("stage ", s, ": layers ", join(ranges, " and "), ", memory ", format_bytes(stage.bytes), ", ",
                    format_count(static_cast<std::int64_t>(stage.bytes)), " bytes\n");
  }
  text += plan.stages.empty() ? std::string("memory\n") : text_of("memory of stage ", plan.largest_stage, "\n");
  text += to_text(plan.memory) + plan.device + ": " + plan.fit;
  text += printed("work of a micro-batch of %s tokens\n", format_count(plan.tokens_per_micro_batch).c_str());
  text += printed("  %-28s %14.3f GFLOP\n", "forward and backward", plan.flops_per_micro_batch * 1e-9);
  text += printed("  %-28s %14.3f GB\n", "read and written", plan.bytes_per_micro_batch * 1e-9);
  if (plan.seconds_per_micro_batch > 0) {
    text += printed("  %-28s %14.3f ms, by %s rates\n", "at the device's limits", plan.seconds_per_micro_batch * 1e3,
                    plan.rates.c_str());
  }
  text += plan.steps > 0 ? printed("steps %s\n", format_count(plan.steps).c_str()) : "steps: depends on the data\n";
  return plan.devices.empty() ? text : text + device_table(plan.devices);
}

}  // namespace hone
