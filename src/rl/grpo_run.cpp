#include "rl/grpo_run.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "engine/generation_program.h"
#include "model/registry.h"
#include "train/setup.h"

namespace hone {
namespace {

constexpr std::int64_t kMaxSequences = 64;
constexpr std::int64_t kMaxBatchTokens = 512;

std::int64_t longest_prompt(const GrpoRun& run) { return std::max<std::int64_t>(run.prompts.longest(), 1); }

// A template that opens the thoughts itself leaves them out of the completion.
bool prefills_think(const GrpoRun& run) {
  if (run.prompts.size() == 0) return false;
  return run.tokenizer.decode(run.prompts.tokens(0)).ends_with("<think>\n");
}

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
          .length_scope = keys.length_scope};
}

void make_rewards(GrpoRun& run) {
  RewardRegistry registry;
  register_all_reward(registry);
  const bool prefilled = prefills_think(run);
  if (prefilled) log_info("the chat template opens <think> itself: the format reward counts it as present");
  const RewardOptions options = reward_options(run.options, prefilled);
  for (const std::string& name : run.options.reward_funcs) run.rewards.push_back(registry.make(name, options));
  run.reward_weights = run.options.reward_weights;
  if (run.reward_weights.empty()) run.reward_weights.assign(run.rewards.size(), 1.0);
}

}  // namespace

GrpoRun prepare_grpo(const GrpoOptions& options, const OptionInput& input) {
  if (options.eval_strategy != Interval::no) {
    throw Error(input.place_of("eval_strategy"), "is not implemented in hone grpo yet",
                "hone eval scores its checkpoints");
  }
  const std::filesystem::path path = resolve_model(options.model_name_or_path);
  GrpoRun run{.options = options,
              .options_json = {},
              .batch = grpo_batch(options, 1, input),
              .initial = std::make_unique<ModelDirectory>(path),
              .model = nullptr,
              .tokenizer = Tokenizer::load(path)};
  GrpoOptions copy = options;
  run.options_json = option_json(OptionTable(copy)).dump();
  run.model = family_registry().create(run.initial->config());
  check_vocabulary(*run.model, run.tokenizer);
  run.dtype = weight_dtype(options).value_or(checkpoint_dtype(*run.initial));
  run.generation_config = run.initial->generation_config() != nullptr ? run.initial->generation_config()->dump() : "{}";
  run.stop_token_ids = stop_token_ids(run.generation_config, *run.model, run.tokenizer);
  if (run.stop_token_ids.empty()) {
    throw Error(path.string(), "no end token: neither generation_config.json, config.json nor the tokenizer name one",
                "set eos_token_id, or every completion runs to max_completion_length");
  }
  const Source source(options.dataset_name, {.split = options.dataset_train_split});
  EncodingReport report;
  run.prompts = encode_prompts(
      source, run.tokenizer, chat_template_of(run.tokenizer, options.chat_template),
      {.columns = {.prompt_column = options.dataset_prompt_column, .system_prompt = options.system_prompt},
       .max_prompt_length = options.max_prompt_length.value_or(0)},
      report);
  report.log(source.name(), text_of("max_prompt_length ", options.max_prompt_length.value_or(0)));
  if (run.prompts.size() < run.batch.prompts) {
    throw Error(input.place_of("dataset_name"), text_of(source.name(), " has ", run.prompts.size(),
                                                        " prompts, one generation takes ", run.batch.prompts));
  }
  make_rewards(run);
  run.engine.max_model_len = longest_prompt(run) + options.max_completion_length;
  run.engine.max_num_seqs = std::min(run.batch.completions, kMaxSequences);
  run.engine.max_batch_tokens = std::max(kMaxBatchTokens, run.engine.max_num_seqs);
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

GrpoPrograms trace_run(const GrpoRun& run) {
  GrpoPrograms programs;
  const Capacity micro_batch{run.batch.micro_batch * run.engine.max_model_len, run.batch.micro_batch};
  const LossProgramOptions options = loss_program_options(run.options, micro_batch, run.dtype);
  programs.policy = trace_policy(*run.model, policy_loss_options(run.options, run.batch), options);
  MemoryBreakdown& memory = programs.memory;
  add_training_state(memory, *run.model, run.dtype, optimizer_options(run.options));
  memory.add_program(plan_memory(programs.policy, options.device));
  if (run.options.beta != 0) {
    programs.reference = trace_reference(*run.model, run.options.temperature, options);
    memory.add_program(plan_memory(*programs.reference, options.device));
    memory.reference = TensorStore::bytes_of(weight_types(*run.model, run.dtype));
  }
  memory.add_program(
      plan_memory(Optimizer::trace_update(*run.model, run.dtype, optimizer_options(run.options)), options.device));
  const KvLayout layout = kv_layout(run.engine);
  memory.kv_cache = TensorStore::bytes_of(kv_types(*run.model, layout, run.dtype));
  for (const Capacity& capacity : engine_capacities(run.engine)) {
    memory.add_program(plan_memory(trace_generation(*run.model, capacity, layout, run.dtype), options.device));
  }
  return programs;
}

MetricValues train(GrpoRun& run) {
  GrpoPrograms programs = trace_run(run);
  const double tokens = static_cast<double>(run.batch.micro_batch * run.engine.max_model_len);
  const double flops_per_token = programs.policy.cost().flops / tokens;
  log_info(text_of("grpo: ", format_count(parameter_count(*run.model)), " parameters in ", name_of(run.dtype), ", ",
                   run.total_steps, " steps of ", run.batch.prompts, " prompts x ", run.options.num_generations,
                   " completions a generation, ", format_bytes(programs.memory.total())));

  Device& device = open_device(run.options.device);
  const std::size_t before = device.allocated_bytes();
  auto arena = std::make_shared<Arena>(device);
  TensorStore weights = load_weights(*run.model, *run.initial, run.dtype, device);
  std::optional<TensorStore> reference_weights;
  if (programs.reference) {
    reference_weights.emplace(device, weight_types(*run.model, run.dtype));
    reference_weights->copy_from(weights);
  }
  Optimizer optimizer(*run.model, weights, arena, optimizer_options(run.options));
  Executable policy(std::move(programs.policy), arena, {.weights = &weights, .gradients = &optimizer.gradients()});
  std::optional<Executable> reference;
  if (programs.reference) {
    reference.emplace(std::move(*programs.reference), arena, Bindings{.weights = &*reference_weights});
  }
  Engine engine(*run.model, run.tokenizer, weights, arena, run.engine);
  (void)arena->base();
  check_plan(device, before, programs.memory);

  GrpoTask task({.options = run.options,
                 .batch = run.batch,
                 .policy = policy,
                 .reference = reference ? &*reference : nullptr,
                 .reference_weights = reference_weights ? &*reference_weights : nullptr,
                 .weights = weights,
                 .engine = engine,
                 .tokenizer = run.tokenizer,
                 .prompts = run.prompts,
                 .rewards = run.rewards,
                 .reward_weights = run.reward_weights,
                 .stop_token_ids = run.stop_token_ids,
                 .completions_dir = std::filesystem::path(run.options.output_dir) / "completions"});
  Trainer trainer(run.options,
                  {.command = "grpo",
                   .total_steps = run.total_steps,
                   .flops_per_token = flops_per_token,
                   .options = run.options_json},
                  {.model = *run.model,
                   .weights = weights,
                   .optimizer = optimizer,
                   .tokenizer = run.tokenizer,
                   .generation_config = run.generation_config});
  return trainer.run(task);
}

}  // namespace hone
