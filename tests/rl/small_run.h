// GRPO as a whole on a small model, with rewards made here.
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

// Letters of a text that come before 'n', as a share.
[[nodiscard]] std::optional<double> early_letters(const RewardInput& input);

// Four completions of at most 12 tokens a step, no reference model, a logged line each step.
[[nodiscard]] GrpoOptions small_options(const std::filesystem::path& output_dir);

// `count` prompts of random tokens; the second one prefills "zz".
[[nodiscard]] PromptSet random_prompts(std::int64_t count, std::int64_t vocab, std::uint64_t seed);

// Six prompts; rewards "early" (early_letters) and, at half the weight, "sometimes", which has no opinion on every
// third prompt.
[[nodiscard]] GrpoRun make_run(const GrpoOptions& options, std::int64_t steps, const char* model = "qwen3",
                               DType dtype = DType::f32);

// Trains; what it logged.
[[nodiscard]] std::vector<MetricRow> train_rows(const GrpoOptions& options, std::int64_t steps,
                                                const char* model = "qwen3", DType dtype = DType::f32);

// The lines of OUTPUT_DIR/completions/NAME.jsonl.
[[nodiscard]] std::vector<Json> completions_in(const GrpoOptions& options, const std::string& name);
[[nodiscard]] std::vector<Json> completions_of(const GrpoOptions& options, std::int64_t step);

// A metric that must be there.
[[nodiscard]] double value_of(const MetricRow& row, const std::string& name);

}  // namespace hone::test
