#include "rl/grpo_run.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "backend/gpu_collective.h"
#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "model/lora.h"
#include "model/registry.h"
#include "rl/grpo_task.h"
#include "rl/policy_program.h"
#include "rl/reward_options.h"
#include "rl/reward_trial.h"
#include "rl/server_rollout.h"
#include "train/launch.h"
#include "train/memory_fit.h"
#include "train/run_collectives.h"
#include "train/setup.h"
#include "train/whole_weights.h"

namespace hone {
namespace {

// Requests that the engine runs concurrently, and how many of full length its KV cache holds. If most completions
// become longer than a quarter of the full length, the last ones wait for free blocks.
constexpr std::int64_t kMaxSequences = 256;
constexpr std::int64_t kFullLengthSequences = 64;

std::int64_t longest_prompt(const GrpoRun& run) {
  return std::max<std::int64_t>({run.prompts.longest(), run.eval_prompts ? run.eval_prompts->longest() : 0, 1});
}

// Checks that the longest prompt and its completion together fit into the positions of the model.
void check_completions(const GrpoRun& run, const OptionInput& input) {
  const std::int64_t positions = run.model->shape().max_position_embeddings;
  const std::int64_t longest = longest_prompt(run);
  const bool has_room = longest < positions;
  check_positions(run.model->shape(), run.engine.max_model_len,
                  input.place_of(has_room ? "max_completion_length" : "max_prompt_length"),
                  text_of("the longest prompt has ", longest, " tokens: ",
                          has_room ? text_of("max_completion_length at most ", positions - longest)
                                   : text_of("max_prompt_length below ", positions)));
}

PromptSet read_prompts(const Source& source, const GrpoRun& run) {
  const GrpoOptions& options = run.options;
  EncodingReport report;
  PromptSet prompts =
      token_cache_of(options, options)
          .prompts(source, run.tokenizer, chat_template_of(run.tokenizer, options.chat_template),
                   {.columns = prompt_columns(options), .max_prompt_length = options.max_prompt_length.value_or(0)},
                   report);
  report.log(source.name(), text_of("max_prompt_length ", options.max_prompt_length.value_or(0)));
  return prompts;
}

// Returns true if prompts end in an opened <think>, which completions then do not contain.
bool prefills_think(const GrpoRun& run) {
  if (run.prompts.size() == 0) return false;
  return run.tokenizer.decode(run.prompts.tokens(0)).ends_with("<think>\n");
}

void make_rewards(GrpoRun& run) {
  const bool prefilled = prefills_think(run);
  if (prefilled) log_info("the chat template opens <think> itself: the format reward counts it as present");
  run.rewards = rewards_of(run.options, prefilled, hidden_paths(run.options));
  run.reward_weights = run.options.reward_weights;
  if (run.reward_weights.empty()) run.reward_weights.assign(run.rewards.size(), 1.0);
}

}  // namespace

ColumnOptions prompt_columns(const GrpoOptions& options) {
  return {.prompt_column = options.dataset_prompt_column, .system_prompt = options.system_prompt};
}

void try_rewards(const GrpoRun& run) {
  const Json row = run.prompts.row(0);
  const Json question = question_in(row, prompt_columns(run.options));
  hone::try_rewards(run.rewards, {.row = row,
                                  .question = question,
                                  .completions = run.options.num_generations,
                                  .tokenizer = &run.tokenizer,
                                  .total_steps = run.total_steps});
}

GrpoRun prepare_grpo(const GrpoOptions& options, const OptionInput& input) {
  // Model configuration, tokenizer and end tokens; no weights yet.
  const std::filesystem::path path = resolve_model(options.model_name_or_path, options.model_revision);
  const GrpoBatch batch = grpo_batch(options, options.mesh().data_size(), input);
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
  prepare_experts(*run.model, options.experts, options.use_peft);
  run.model = divided_model(options, with_adapter(std::move(run.model), options, options));
  run.stop_token_ids = stop_token_ids(run.generation_config, *run.model, run.tokenizer);
  if (run.stop_token_ids.empty()) {
    throw Error(path.string(), "no end token: neither generation_config.json, config.json nor the tokenizer name one",
                "set eos_token_id, or every completion runs to max_completion_length");
  }
  // Prompts for training and evaluation, then the rewards, which depend on how prompts end.
  const Source source = open_training_data(options);
  run.data_name = source.name();
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
  // The engine is sized for the longest prompt with a full completion.
  run.engine = rollout_engine(options, run.batch, longest_prompt(run));
  check_completions(run, input);
  run.benchmark_bytes_held = benchmark_bytes_held(options, *run.model, run.dtype);
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

// The most completions that a process, or a tensor group, generates together.
std::int64_t most_of_a_rank(const GrpoOptions& options, const GrpoBatch& batch) {
  const std::int64_t groups = options.mesh().data_size();
  return (batch.prompts + groups - 1) / groups * options.num_generations;
}

}  // namespace

EngineOptions rollout_engine(const GrpoOptions& options, const GrpoBatch& batch, std::int64_t longest_prompt) {
  return engine_options({.max_model_len = longest_prompt + options.max_completion_length,
                         .max_num_seqs = std::min(most_of_a_rank(options, batch), kMaxSequences),
                         .full_length = kFullLengthSequences,
                         .adjust_logits = options.repetition_penalty != 1,
                         .cache = {.latent_kv_cache = options.latent_kv_cache}});
}

GrpoSizes sizes_of(const GrpoRun& run) {
  return {.model = run.model.get(),
          .dtype = run.dtype,
          .options = &run.options,
          .batch = run.batch,
          .engine = run.engine,
          .evaluates = run.eval_prompts.has_value(),
          .benchmark_bytes_held = run.benchmark_bytes_held};
}

bool needs_forward(const GrpoOptions& options) {
  return options.top_entropy_quantile < 1 || options.needs_trainer_logps();
}

bool needs_policy_evaluation(const GrpoOptions& options, bool evaluates) { return evaluates || options.beta == 0; }

MicroBatchShape micro_batch_shape(const GrpoSizes& sizes, const TrainingOptions& training) {
  const std::int64_t longest = sizes.engine.max_model_len;
  const std::optional<std::int64_t> asked = training.max_tokens_per_micro_batch;
  if (asked && *asked < longest) {
    throw Error("max_tokens_per_micro_batch",
                text_of("is ", *asked, ", but the longest prompt and max_completion_length are ", longest,
                        " tokens together, and a completion is never split"),
                text_of("at least ", longest, ", or lower max_completion_length"));
  }
  const std::int64_t batch = sizes.batch.size * longest;
  const std::int64_t whole = tokens_of_step(batch, sizes.options->gradient_accumulation_steps);
  const std::int64_t tokens = std::min(asked.value_or(batch), whole);
  const std::int64_t completions = sizes.batch.size * sizes.options->gradient_accumulation_steps;
  return {.limits = {.tokens = tokens, .documents = std::min(completions, tokens)},
          .capacities = training.activation_offloading ? std::vector{tokens} : even_capacities(tokens)};
}

TokenRange token_range(const GrpoSizes& sizes, const TrainingOptions& training) {
  return {micro_batch_shape(sizes, training).limits.tokens, sizes.engine.max_model_len};
}

Workspace trace_run(const GrpoSizes& run, const TrainingOptions& training) {
  const GrpoOptions& keys = *run.options;
  Workspace workspace = training_workspace(training, *run.model, run.dtype);
  // The reference of an adapter is its base model, whose weights are loaded already.
  const bool has_adapter = run.model->whole().adapter() != nullptr;
  const char* reference_weights = has_adapter ? kWeightStore : kReferenceStore;
  if (keys.beta != 0 && !has_adapter) {
    workspace.add_weights(kReferenceStore, weight_types(*run.model, run.dtype), "extra.");
  }
  const MicroBatchShape shape = micro_batch_shape(run, training);
  LossProgramOptions options{
      .compile = compile_options(training, *run.model, run.dtype, workspace.store_bytes() + run.benchmark_bytes_held)};
  const PolicyLossOptions loss = policy_loss_options(keys, run.batch);
  const auto add = [&](const char* name, const ProgramUse& use, const auto& trace) {
    const auto of = [&](std::int64_t tokens) {
      options.capacity = {tokens, std::min(shape.limits.documents, tokens)};
      return trace();
    };
    add_sized(workspace, name, shape.capacities, of, use);
  };
  const auto logps_of = [&](bool adapter) {
    return trace_target_logps(*run.model, keys.temperature, options, adapter);
  };
  add(kPolicyProgram, training_use(), [&] { return trace_policy(*run.model, loss, options); });
  if (needs_policy_evaluation(keys, run.evaluates))
    add(kPolicyEvaluationProgram, {}, [&] { return trace_policy_evaluation(*run.model, loss, options); });
  if (needs_forward(keys)) add(kForwardProgram, {}, [&] { return logps_of(true); });
  if (keys.beta != 0) add(kReferenceProgram, {.weights = reference_weights}, [&] { return logps_of(false); });
  // Nothing trains while completions are generated, so the KV cache and the rollouts' activations take the memory of
  // gradients and training activations.
  if (keys.rollout == RolloutKind::kOwn) {
    workspace.share_training_memory_with_rollouts();
    add_generation(workspace, *run.model, run.dtype, run.engine);
  }
  return workspace;
}

namespace {

std::unique_ptr<RolloutSource> rollout_source(const GrpoRun& run, Workspace& workspace) {
  if (run.options.rollout == RolloutKind::kOwn) {
    auto group =
        run.job.tensor_size() > 1 ? std::make_unique<EngineGroup>(*run.job.peers(), run.job.tensor_group()) : nullptr;
    Engine engine(*run.model, run.tokenizer, workspace, run.engine, group.get());
    return std::make_unique<EngineRollout>(std::move(engine), std::move(group));
  }
  return std::make_unique<ServerRollout>(run, workspace.store(kWeightStore));
}

}  // namespace

Workspace trace_run(const GrpoRun& run) { return trace_run(sizes_of(run), run.options); }

RunBytes bytes_of(const GrpoRun& run) {
  return {.with =
              [&run](const TrainingOptions& options) {
                return trace_run(sizes_of(run), options).memory().total() + run.benchmark_bytes_held;
              },
          .micro_batch = token_range(sizes_of(run), run.options)};
}

MetricValues train(GrpoRun& run) {
  // Trace all programs, so that the memory of the run is known, logged and checked before anything is allocated.
  Device& device = open_device(run.options.device);
  const RunCollectives collectives(device, run.job);
  agree(run.job, run.options, run.options_json, device);
  if (!run.broadcasts && run.options.rollout == RolloutKind::kServer && device.kind() == DeviceKind::kCuda)
    run.broadcasts = gpu_broadcasts(device);
  Workspace workspace = trace_run(run);
  const std::size_t bytes = workspace.memory().total();
  const std::string title = run_title("grpo", run.options);
  log_info(start_line({.title = title,
                       .model = run.options.model_name_or_path,
                       .data = text_of(run.data_name, " (", format_count(run.prompts.size()),
                                       run.prompts.size() == 1 ? " prompt)" : " prompts)"),
                       .work = text_of(format_count(run.total_steps), run.total_steps == 1 ? " step, " : " steps, ",
                                       run.batch.prompts, run.batch.prompts == 1 ? " prompt x " : " prompts x ",
                                       run.options.num_generations, " completions a generation",
                                       run.job.size() > 1 ? text_of(" in ", run.job.size(), " processes") : ""),
                       .bytes = bytes,
                       .output_dir = run.options.output_dir},
                      *run.model, run.dtype, device));
  set_gemm_tuning(device, run.options.gemm.tuning());
  check_fits(run.options, run.dtype, device, bytes + run.benchmark_bytes_held, bytes_of(run));
  // Load the weights, allocate all other memory, and copy the reference model from the initial weights.
  const auto load = [&](const HeldWeights& held, TensorStore& stored) {
    held.load(*run.initial, Vocabulary::kAsStored, stored);
  };
  workspace.provide(kWeightStore,
                    &run.model->whole() != run.model.get()
                        ? held_weights(*run.model, optimizer_options(run.options), run.dtype, device, load)
                        : load_weights(*run.model, *run.initial, run.dtype, device));
  TensorStore& weights = workspace.store(kWeightStore);
  if (run.model->whole().adapter() != nullptr) {
    initialize_adapter(*run.model, weights, static_cast<std::uint64_t>(run.options.seed));
  }
  workspace.allocate(device);
  if (workspace.has_store(kReferenceStore)) workspace.store(kReferenceStore).copy_from(weights);
  Optimizer optimizer(workspace, *run.model, optimizer_options(run.options));
  if (collectives.data() != nullptr) optimizer.join(*collectives.data());
  const std::unique_ptr<RolloutSource> source = rollout_source(run, workspace);
  GrpoTask task(run, workspace, *source);
  Trainer trainer(run.options,
                  {.command = "grpo",
                   .title = title,
                   .total_steps = run.total_steps,
                   .options = run.options_json,
                   .observers = run.observers,
                   .job = run.job},
                  {.model = *run.model,
                   .weights = weights,
                   .optimizer = optimizer,
                   .tokenizer = run.tokenizer,
                   .generation_config = run.generation_config});
  return trainer.run(task);
}

}  // namespace hone
