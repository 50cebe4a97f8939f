// Runs of `hone grpo`: from options to everything that the first step needs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/prompt_set.h"
#include "engine/engine.h"
#include "model/loaded_model.h"
#include "reward/reward.h"
#include "rl/options.h"
#include "train/run_observer.h"
#include "workspace/workspace.h"

namespace hone {

// Ready to start, but for the weights.
struct GrpoRun {
  GrpoOptions options;
  std::string options_json;
  GrpoBatch batch;
  std::unique_ptr<ModelDirectory> initial;
  std::unique_ptr<Model> model;
  Tokenizer tokenizer;
  std::string generation_config;  // JSON
  std::vector<TokenId> stop_token_ids;
  DType dtype = DType::f32;
  std::string data_name;
  PromptSet prompts;
  std::optional<PromptSet> eval_prompts;
  std::vector<Reward> rewards;
  std::vector<double> reward_weights;
  EngineOptions engine;
  std::int64_t total_steps = 0;
  std::vector<RunObserver*> observers = {};  // outlive the run
  std::size_t beside_bytes = 0;              // of the device, which others take while a step is not under way
};

// Reads data, tokenizer, configuration and rewards, but no weights. Throws Error.
[[nodiscard]] GrpoRun prepare_grpo(const GrpoOptions& options, const OptionInput& input);

// Calls each reward once on the first prompt with made-up completions (reward_trial.h). Throws Error.
void try_rewards(const GrpoRun& run);

// A run's programs, by these names, and those of the update and of the engine, with the memory that they take; nothing
// is allocated.
inline constexpr const char* kPolicyProgram = "policy";
inline constexpr const char* kPolicyEvaluationProgram = "evaluation";  // where there are eval_prompts
inline constexpr const char* kForwardProgram = "forward";              // where needs_forward()
inline constexpr const char* kReferenceProgram = "reference";          // where beta is not 0
[[nodiscard]] Workspace trace_run(const GrpoRun& run);
// What the programs depend on.
struct GrpoSizes {
  const Model* model = nullptr;
  DType dtype = DType::f32;
  const GrpoOptions* options = nullptr;
  GrpoBatch batch;
  EngineOptions engine;
  bool evaluates = false;
  std::size_t beside_bytes = 0;  // as GrpoRun has it
};
[[nodiscard]] GrpoSizes sizes_of(const GrpoRun& run);
// `training`: in place of those in `options`.
[[nodiscard]] Workspace trace_run(const GrpoSizes& sizes, const TrainingOptions& training);
// Whether there are passes of the policy beside those that train.
[[nodiscard]] bool needs_forward(const GrpoOptions& options);
// The engine of a run whose longest prompt has so many tokens.
[[nodiscard]] EngineOptions rollout_engine(const GrpoOptions& options, const GrpoBatch& batch,
                                           std::int64_t longest_prompt);
// The bytes it would take with other options of the kind that all training shares.
[[nodiscard]] std::size_t bytes_with(const GrpoRun& run, const TrainingOptions& options);

// Trains; returns the last logged metrics.
MetricValues train(GrpoRun& run);

}  // namespace hone
