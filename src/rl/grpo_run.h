// Prepares and runs `hone grpo`: reads data, model configuration and rewards, traces the programs, and trains.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/broadcast_rank.h"
#include "data/micro_batches.h"
#include "data/prompt_set.h"
#include "engine/engine.h"
#include "model/loaded_model.h"
#include "reward/reward.h"
#include "rl/options.h"
#include "train/job.h"
#include "train/memory_fit.h"
#include "train/run_observer.h"
#include "workspace/workspace.h"

namespace hone {

// Everything that a run needs before its weights are loaded.
struct GrpoRun {
  GrpoOptions options;
  std::string options_json;
  GrpoBatch batch;
  std::unique_ptr<ModelDirectory> initial;
  std::unique_ptr<Model> model;
  Tokenizer tokenizer;
  std::string generation_config;  // JSON
  std::vector<TokenId> stop_token_ids;
  DType dtype = DType::kF32;
  std::string data_name;
  PromptSet prompts;
  std::optional<PromptSet> eval_prompts;
  std::vector<Reward> rewards;
  std::vector<double> reward_weights;
  EngineOptions engine;
  std::int64_t total_steps = 0;
  std::vector<RunObserver*> observers = {};  // must outlive the run
  Job job = {};                              // batch is that of all its processes
  // Communicators with servers; unset: gpu_broadcasts() if the device is a GPU, otherwise there are none.
  std::optional<BroadcastBackend> broadcasts = {};
  std::size_t benchmark_bytes_held = 0;  // device bytes that benchmarks of checkpoints allocate between steps (setup.h)
};

// Reads data, tokenizer, configuration and rewards, but no weights. Throws Error if the options do not fit them.
[[nodiscard]] GrpoRun prepare_grpo(const GrpoOptions& options, const OptionInput& input);

// Calls each reward once on the first prompt with made-up completions (reward_trial.h). Throws Error if a reward does.
void try_rewards(const GrpoRun& run);

// Names of a run's programs.
inline constexpr const char* kPolicyProgram = "policy";
inline constexpr const char* kPolicyEvaluationProgram = "evaluation";  // if needs_policy_evaluation()
inline constexpr const char* kForwardProgram = "forward";              // if needs_forward()
inline constexpr const char* kReferenceProgram = "reference";          // if beta is not 0
// Traces these programs, the update and the engine's programs into a workspace, whose memory() is then known. Allocates
// nothing.
[[nodiscard]] Workspace trace_run(const GrpoRun& run);
// The part of a run that determines its programs.
struct GrpoSizes {
  const Model* model = nullptr;
  DType dtype = DType::kF32;
  const GrpoOptions* options = nullptr;
  GrpoBatch batch;
  EngineOptions engine;
  bool evaluates = false;
  std::size_t benchmark_bytes_held = 0;  // GrpoRun::benchmark_bytes_held
};
[[nodiscard]] GrpoSizes sizes_of(const GrpoRun& run);
// The same with `training` instead of the training options in sizes.options.
[[nodiscard]] Workspace trace_run(const GrpoSizes& sizes, const TrainingOptions& training);
// Returns the shape of the micro-batches, whose default is as many tokens as per_device_train_batch_size completions
// may have. Throws Error if a completion may be longer than max_tokens_per_micro_batch.
[[nodiscard]] MicroBatchShape micro_batch_shape(const GrpoSizes& sizes, const TrainingOptions& training);
// Returns the micro-batch tokens between which a run may choose to fit its memory.
[[nodiscard]] TokenRange token_range(const GrpoSizes& sizes, const TrainingOptions& training);
// Returns true if a run needs forward passes of the policy in addition to its training passes: for
// top_entropy_quantile, or for comparing the trainer with the sampler.
[[nodiscard]] bool needs_forward(const GrpoOptions& options);
// Returns true if a run computes the policy loss without gradients: for eval_prompts (`evaluates`), or for completions
// whose group has equal rewards, unless a KL term gives them a gradient.
[[nodiscard]] bool needs_policy_evaluation(const GrpoOptions& options, bool evaluates);
// Returns the capacities of the engine. longest_prompt: tokens of the longest prompt.
[[nodiscard]] EngineOptions rollout_engine(const GrpoOptions& options, const GrpoBatch& batch,
                                           std::int64_t longest_prompt);
// Returns the device bytes that the run would take with other training options.
[[nodiscard]] RunBytes bytes_of(const GrpoRun& run);

// Loads the weights, trains and writes the model. Returns the last logged metrics. Throws Error if the run does not fit
// the memory of its device.
MetricValues train(GrpoRun& run);

}  // namespace hone
