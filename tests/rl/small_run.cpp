#include "rl/small_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/random.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPrompts = 6;

// Gives no score for every third prompt.
std::optional<double> sometimes(const RewardInput& input) {
  const auto number = input.row->at("number").get<std::int64_t>();
  if (number % 3 == 2) return std::nullopt;
  return input.ended ? 0.1 : 0.0;
}

}  // namespace

std::optional<double> early_letters(const RewardInput& input) {
  const auto count = std::count_if(input.completion.begin(), input.completion.end(), [](char c) { return c < 'n'; });
  return static_cast<double>(count) / static_cast<double>(std::max<std::size_t>(input.completion.size(), 1));
}

GrpoOptions small_options(const fs::path& output_dir) {
  GrpoOptions options;
  options.output_dir = output_dir.string();
  options.per_device_train_batch_size = 4;
  options.num_generations = 4;
  options.max_completion_length = 12;
  options.temperature = 0.9;
  options.learning_rate = 1e-3;
  options.lr_scheduler_type = SchedulerType::kConstant;
  options.logging_steps = 1;
  options.save_strategy = SaveStrategy::kNo;
  options.beta = 0;
  options.scale_rewards = RewardScale::kGroup;
  return options;
}

PromptSet random_prompts(std::int64_t count, std::int64_t vocab, std::uint64_t seed) {
  PromptSet prompts;
  const RandomStream random(seed, "prompts");
  std::uint64_t at = 0;
  for (std::int64_t p = 0; p < count; ++p) {
    Prompt prompt{.tokens = {},
                  .prefill = p == 1 ? "zz" : "",
                  .row = Json{{"number", p}, {"prompt", text_of("prompt ", p)}}.dump()};
    for (std::int64_t i = 0; i < 3 + 4 * p % 9; ++i) {
      prompt.tokens.push_back(static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))));
    }
    prompts.add(prompt);
  }
  return prompts;
}

GrpoRun make_run(const GrpoOptions& options, std::int64_t steps, const char* model, DType dtype) {
  const fs::path folder = fixture("models") / model;
  GrpoRun run{.options = options,
              .options_json = "{}",
              .batch = grpo_batch(options, 1, {}),
              .initial = std::make_unique<ModelDirectory>(folder),
              .model = nullptr,
              .tokenizer = letter_tokenizer(1)};
  run.model = family_registry().create(run.initial->config());
  GrpoOptions named = options;
  named.model_name_or_path = folder.string();
  run.model = with_adapter(std::move(run.model), named, named);
  const std::int64_t vocab = run.model->shape().vocab_size;
  run.tokenizer = letter_tokenizer(vocab);
  run.generation_config = "{}";
  for (TokenId token = 0; token < vocab; token += 13) run.stop_token_ids.push_back(token);
  run.dtype = dtype;
  run.prompts = random_prompts(kPrompts, vocab, 3);
  run.rewards = {{"early", "early_reward", each(early_letters)}, {"sometimes", "sometimes_reward", each(sometimes)}};
  run.reward_weights = {1.0, 0.5};
  run.engine = resolved({.max_model_len = run.prompts.longest() + options.max_completion_length,
                         .max_num_seqs = 4,
                         .max_batch_tokens = 32,
                         .adjust_logits = options.repetition_penalty != 1});
  run.total_steps = steps;
  return run;
}

std::vector<MetricRow> train_rows(const GrpoOptions& options, std::int64_t steps, const char* model, DType dtype) {
  GrpoRun run = make_run(options, steps, model, dtype);
  (void)train(run);
  return read_metrics(fs::path(options.output_dir) / "metrics.jsonl");
}

std::vector<Json> completions_of(const GrpoOptions& options, std::int64_t step) {
  return completions_in(options, "step-" + std::to_string(step));
}

std::vector<Json> completions_in(const GrpoOptions& options, const std::string& name) {
  const fs::path path = fs::path(options.output_dir) / "completions" / (name + ".jsonl");
  std::vector<Json> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line, path.string()));
  return lines;
}

double value_of(const MetricRow& row, const std::string& name) {
  const std::optional<double> value = row.find(name);
  if (!value) ADD_FAILURE() << "step " << row.step << " has no " << name;
  return value.value_or(std::nan(""));
}

}  // namespace hone::test
