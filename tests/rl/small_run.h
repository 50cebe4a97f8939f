// Complete GRPO runs on a small model with artificial rewards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "rl/grpo_run.h"
#include "train/metrics.h"

namespace hone::test {

// Returns the share of a completion's characters below 'n'.
[[nodiscard]] std::optional<double> early_letters(const RewardInput& input);

// Returns options with four completions of at most 12 tokens per step, no reference model, and a log line every step.
[[nodiscard]] GrpoOptions small_options(const std::filesystem::path& output_dir);

// Returns `count` prompts of random tokens; the second one prefills "zz".
[[nodiscard]] PromptSet random_prompts(std::int64_t count, std::int64_t vocab, std::uint64_t seed);

// Returns a run with six prompts and the rewards "early" (early_letters) and, with weight 0.5, "sometimes", which gives
// no score for every third prompt.
[[nodiscard]] GrpoRun make_run(const GrpoOptions& options, std::int64_t steps, const char* model = "qwen3",
                               DType dtype = DType::kF32);

// Trains and returns the logged rows.
[[nodiscard]] std::vector<MetricRow> train_rows(const GrpoOptions& options, std::int64_t steps,
                                                const char* model = "qwen3", DType dtype = DType::kF32);

// Return the lines of OUTPUT_DIR/completions/NAME.jsonl; NAME is "step-STEP" for completions_of.
[[nodiscard]] std::vector<Json> completions_in(const GrpoOptions& options, const std::string& name);
[[nodiscard]] std::vector<Json> completions_of(const GrpoOptions& options, std::int64_t step);

// Returns a metric of a row; the test fails if the row lacks it.
[[nodiscard]] double value_of(const MetricRow& row, const std::string& name);

}  // namespace hone::test
