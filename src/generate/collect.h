// Turns generated completions into a dataset: computes rewards, applies the filters and writes the file.
#pragma once

#include <filesystem>
#include <span>

#include "data/journal.h"
#include "generate/prompts.h"

namespace hone {

// Reads the completions of all prompts from the journal, in order, filters them and writes `path` atomically. Each row
// of the journal contains the lists "generations" (texts), "finish_reasons" and "completion_tokens". Adds to `counts`.
// Throws Error if a reward lacks a column that it needs, or if the filters keep nothing.
void collect_data(const GenerateOptions& options, std::span<const GeneratePrompt> prompts, const Journal& journal,
                  const std::filesystem::path& path, GenerateCounts& counts);

// Tries the rewards on a prompt with artificial completions (rl/reward_trial.h), so that a broken reward is reported
// before anything is generated. Throws Error.
void try_rewards(const GenerateOptions& options, const GeneratePrompt& prompt);

}  // namespace hone
