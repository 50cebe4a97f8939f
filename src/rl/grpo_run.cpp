#include "rl/grpo_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/mixture.h"
#include "engine/generation_program.h"
#include "model/lora.h"
#include "model/registry.h"
#include "passes/offload.h"
#include "reward/own/own_reward.h"
#include "rl/reward_options.h"
#include "rl/reward_rows.h"
#include "rl/server_rollout.h"
#include "train/fit.h"
#include "train/setup.h"

namespace hone {
namespace {

constexpr std::int64_t kMaxSequences = 64;
constexpr std::int64_t kMaxBatchTokens = 512;

std::int64_t longest_prompt(const GrpoRun& run) {
  return std::max<std::int64_t>({run.prompts.longest(), run.eval_prompts ? run.eval_prompts->longest() : 0, 1});
}

PromptSet read_prompts(const Source& source, const GrpoRun& run) {
  const GrpoOptions& options = run.options;
  EncodingReport report;
  PromptSet prompts =
      token_cache_of(options, options)
          .prompts(source, run.tokenizer, chat_template_of(run.tokenizer, options.chat_template),
                   {.columns = {.prompt_column = options.dataset_prompt_column, .system_prompt = options.system_prompt},
                    .max_prompt_length = options.max_prompt_length.value_or(0)},
                   report);
  report.log(source.name(), text_of("max_prompt_length ", options.max_prompt_length.value_or(0)));
  return prompts;
}

// A template that opens the thoughts itself leaves them out of the completion.
bool prefills_think(const GrpoRun& run) {
  if (run.prompts.size() == 0) return false;
  return run.tokenizer.decode(run.prompts.tokens(0)).ends_with("<think>\n");
}

// What holds the answers, and what the run writes.
std::vector<std::string> private_paths(const GrpoOptions& options) {
  std::vector<std::string> paths = {options.dataset_name, options.eval_dataset_name, options.output_dir};
  if (options.dataset_mixture.kind != YamlValue::Kind::null) {
    for (const MixtureDataset& one : read_mixture(options.dataset_mixture, "dataset_mixture").datasets) {
      paths.push_back(one.id);
    }
  }
  return paths;
}

void make_rewards(GrpoRun& run) {
  const bool prefilled = prefills_think(run);
  if (prefilled) log_info("the chat template opens <think> itself: the format reward counts it as present");
  run.rewards = rewards_of(run.options, prefilled, private_paths(run.options));
  run.reward_weights = run.options.reward_weights;
  if (run.reward_weights.empty()) run.reward_weights.assign(run.rewards.size(), 1.0);
}

}  // namespace

RewardOptions reward_options(const RewardKeys& keys, bool think_prefilled) {
  return {.strip_thoughts = keys.strip_thoughts,
          .think_prefilled = think_prefilled,
          .cosine_min_value_wrong = keys.cosine_min_value_wrong,
          .cosine_max_value_wrong = keys.cosine_max_value_wrong,
          .cosine_min_value_correct = keys.cosine_min_value_correct,
          .cosine_max_value_correct = keys.cosine_max_value_correct,
          .cosine_max_len = keys.cosine_max_len,
          .repetition_n_grams = keys.repetition_n_grams,
          .repetition_max_penalty = keys.repetition_max_penalty,
          .max_completion_len = keys.max_completion_len,
          .soft_punish_cache = keys.soft_punish_cache,
          .length_scope = keys.length_scope,
          .sandbox = keys.sandbox,
          .code_language = keys.code_language,
          .code_eval_test_batch_size = keys.code_eval_test_batch_size,
          .code_eval_scoring_mode = keys.code_eval_scoring_mode,
          .cf_tests_folder = keys.cf_tests_folder,
          .rows = visit_rows};
}

std::vector<Reward> rewards_of(const RewardKeys& keys, bool think_prefilled, std::vector<std::string> hidden) {
  RewardRegistry registry;
  register_all_reward(registry);
  RewardOptions options = reward_options(keys, think_prefilled);
  options.hidden = std::move(hidden);
  options.hidden.push_back(keys.cf_tests_folder);
  const std::chrono::milliseconds limit(static_cast<std::int64_t>(std::ceil(keys.reward_timeout * 1000)));
  std::vector<Reward> rewards;
  rewards.reserve(keys.reward_funcs.size());
  for (const std::string& name : keys.reward_funcs) {
    rewards.push_back(is_own_reward(name) ? make_own_reward(name, limit) : registry.make(name, options));
  }
  return rewards;
}

GrpoRun prepare_grpo(const GrpoOptions& options, const OptionInput& input) {
  const std::filesystem::path path = resolve_model(options.model_name_or_path, options.model_revision);
  const GrpoBatch batch = grpo_batch(options, 1, input);
  auto initial = std::make_unique<ModelDirectory>(path);
  GrpoRun run{.options = options,
              .options_json = {},
              .batch = batch,
              .initial = std::move(initial),
              .model = nullptr,
              .tokenizer = tokenizer_of(options)};
  GrpoOptions copy = options;
  run.options_json = option_json(OptionTable(copy)).dump();
  run.model = family_registry().create(run.initial->config());
  check_vocabulary(*run.model, run.tokenizer);
  run.dtype = weight_dtype(options).value_or(checkpoint_dtype(*run.initial));
  run.generation_config = run.initial->generation_config() != nullptr ? run.initial->generation_config()->dump() : "{}";
  run.model = with_adapter(std::move(run.model), options, options);
  run.stop_token_ids = stop_token_ids(run.generation_config, *run.model, run.tokenizer);
  if (run.stop_token_ids.empty()) {
    throw Error(path.string(), "no end token: neither generation_config.json, config.json nor the tokenizer name one",
                "set eos_token_id, or every completion runs to max_completion_length");
  }
  const Source source = open_training_data(options);
  run.prompts = read_prompts(source, run);
  if (run.prompts.size() < run.batch.prompts) {
    throw Error(input.place_of("dataset_name"), text_of(source.name(), " has ", run.prompts.size(),
                                                        " prompts, one generation takes ", run.batch.prompts));
  }
  if (options.evaluates() && input.was_set("per_device_eval_batch_size")) {
    log_once(
        "per_device_eval_batch_size has no effect: how many completions an evaluation reads at a time changes no "
        "figure");
  }
  if (options.evaluates()) run.eval_prompts = read_prompts(open_eval_data(options, options), run);
  make_rewards(run);
  run.engine.max_model_len = longest_prompt(run) + options.max_completion_length;
  run.engine.max_num_seqs = std::min(run.batch.completions, kMaxSequences);
  run.engine.max_batch_tokens = std::max(kMaxBatchTokens, run.engine.max_num_seqs);
  run.engine.repetition_penalty = options.repetition_penalty != 1;
  run.engine = resolved(run.engine);
  const std::int64_t micro_steps = GrpoTask::micro_steps_per_epoch(options, run.batch, run.prompts.size());
  const std::int64_t accumulation = options.gradient_accumulation_steps;
  run.total_steps =
      options.max_steps > 0
          ? options.max_steps
          : static_cast<std::int64_t>(std::ceil(options.num_train_epochs * static_cast<double>(micro_steps) /
                                                static_cast<double>(accumulation)));
  return run;
}

namespace {

GrpoPrograms trace_with(const GrpoRun& run, const TrainingOptions& training, std::int64_t completions) {
  GrpoPrograms programs;
  MemoryBreakdown& memory = programs.memory;
  add_training_state(memory, *run.model, run.dtype, optimizer_options(training));
  const KvLayout layout = kv_layout(run.engine);
  const bool has_engine = run.options.rollout == RolloutKind::own;
  if (has_engine) memory.kv_cache = TensorStore::bytes_of(kv_types(*run.model, layout, run.dtype));
  // The reference of an adapter is its base, which is there.
  const LoraModel* lora = run.model->adapter();
  const Model& reference = lora != nullptr ? lora->base() : *run.model;
  if (run.options.beta != 0 && lora == nullptr)
    memory.reference = TensorStore::bytes_of(weight_types(*run.model, run.dtype));
  const LossProgramOptions options =
      loss_program_options(training, {completions * run.engine.max_model_len, completions}, run.dtype, memory);
  const PolicyLossOptions loss = policy_loss_options(run.options, run.batch);
  const auto planned = [&](Program program) {
    memory.add_program(plan_memory(program, options.device));
    return program;
  };
  programs.policy = planned(trace_policy(*run.model, loss, options));
  memory.offloaded = TensorStore::bytes_of(offloaded_types(programs.policy));
  if (run.eval_prompts) programs.evaluation = planned(trace_policy_evaluation(*run.model, loss, options));
  if (GrpoTask::needs_forward(run.options)) {
    programs.forward = planned(trace_reference(*run.model, run.options.temperature, options));
  }
  if (run.options.beta != 0) {
    programs.reference = planned(trace_reference(reference, run.options.temperature, options));
  }
  (void)planned(Optimizer::trace_update(*run.model, run.dtype, optimizer_options(training)));
  for (const Capacity& capacity : has_engine ? engine_capacities(run.engine) : std::vector<Capacity>()) {
    (void)planned(trace_generation(*run.model, {.capacity = capacity,
                                                .layout = layout,
                                                .dtype = run.dtype,
                                                .repetition_penalty = run.engine.repetition_penalty}));
  }
  return programs;
}

std::unique_ptr<RolloutSource> rollout_source(const GrpoRun& run, const TensorStore& weights,
                                              const std::shared_ptr<Arena>& arena) {
  if (run.options.rollout == RolloutKind::own) {
    return std::make_unique<EngineRollout>(Engine(*run.model, run.tokenizer, weights, arena, run.engine));
  }
  check_positions(run.model->shape(), run.engine.max_model_len, "max_completion_length");
  return std::make_unique<ServerRollout>(run.options, *run.model, weights, run.tokenizer, run.generation_config);
}

}  // namespace

GrpoPrograms trace_run(const GrpoRun& run) { return trace_with(run, run.options, run.batch.micro_batch); }

std::size_t bytes_with(const GrpoRun& run, const TrainingOptions& options) {
  const std::int64_t completions = std::min(run.batch.micro_batch, options.per_device_train_batch_size);
  return trace_with(run, options, completions).memory.total();
}

MetricValues train(GrpoRun& run) {
  GrpoPrograms programs = trace_run(run);
  const BatchWork work = work_of(programs.policy, run.batch.micro_batch * run.engine.max_model_len);
  log_info(text_of(run_title("grpo", run.options), ": ", parameters_text(*run.model), " in ", name_of(run.dtype), ", ",
                   run.total_steps, " steps of ", run.batch.prompts, " prompts x ", run.options.num_generations,
                   " completions a generation, ", format_bytes(programs.memory.total())));

  Device& device = open_device(run.options.device);
  set_gemm_tuning(device, run.options.gemm.tuning());
  check_fits(run.options, run.dtype, device, programs.memory.total(),
             [&](const TrainingOptions& options) { return bytes_with(run, options); });
  const std::size_t before = device.allocated_bytes();
  auto arena = std::make_shared<Arena>(device);
  TensorStore weights = load_weights(*run.model, *run.initial, run.dtype, device);
  const LoraModel* lora = run.model->adapter();
  if (lora != nullptr) initialize_adapter(*lora, weights, static_cast<std::uint64_t>(run.options.seed));
  std::optional<TensorStore> reference_weights;
  if (programs.reference && lora == nullptr) {
    reference_weights.emplace(device, weight_types(*run.model, run.dtype));
    reference_weights->copy_from(weights);
  }
  Optimizer optimizer(*run.model, weights, arena, optimizer_options(run.options));
  const TensorStore offloaded = offload_store(device, programs.policy);
  Executable policy(std::move(programs.policy), arena,
                    {.weights = &weights, .gradients = &optimizer.gradients(), .states = &offloaded});
  const auto compiled = [&](std::optional<Program>& program, const TensorStore* bound) {
    std::optional<Executable> executable;
    if (program) executable.emplace(std::move(*program), arena, Bindings{.weights = bound});
    return executable;
  };
  std::optional<Executable> evaluation = compiled(programs.evaluation, &weights);
  std::optional<Executable> forward = compiled(programs.forward, &weights);
  std::optional<Executable> reference =
      compiled(programs.reference, reference_weights ? &*reference_weights : &weights);
  const std::unique_ptr<RolloutSource> source = rollout_source(run, weights, arena);
  (void)arena->base();
  check_plan(device, before, programs.memory);

  GrpoTask task({.options = run.options,
                 .batch = run.batch,
                 .policy = policy,
                 .work = work,
                 .evaluation = evaluation ? &*evaluation : nullptr,
                 .forward = forward ? &*forward : nullptr,
                 .reference = reference ? &*reference : nullptr,
                 .reference_weights = reference_weights ? &*reference_weights : nullptr,
                 .weights = weights,
                 .source = *source,
                 .tokenizer = run.tokenizer,
                 .prompts = run.prompts,
                 .eval_prompts = run.eval_prompts ? &*run.eval_prompts : nullptr,
                 .rewards = run.rewards,
                 .reward_weights = run.reward_weights,
                 .stop_token_ids = run.stop_token_ids,
                 .completions_dir = std::filesystem::path(run.options.output_dir) / "completions"});
  Trainer trainer(run.options, {.command = "grpo", .total_steps = run.total_steps, .options = run.options_json},
                  {.model = *run.model,
                   .weights = weights,
                   .optimizer = optimizer,
                   .tokenizer = run.tokenizer,
                   .generation_config = run.generation_config});
  return trainer.run(task);
}

}  // namespace hone
