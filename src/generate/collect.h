// From generations to data: rewards, filters, the file.
#pragma once

#include <filesystem>
#include <span>

#include "data/journal.h"
#include "generate/prompts.h"

namespace hone {

// Reads the prompts' generations from the journal, in order, filters them, and writes `path` whole or not at all. The
// journal's rows hold "generations" (texts), "finish_reasons" and "completion_tokens", a list each. Throws Error where
// a reward lacks what it needs, or nothing is kept.
void collect_data(const GenerateOptions& options, std::span<const GeneratePrompt> prompts, const Journal& journal,
                  const std::filesystem::path& path, GenerateCounts& counts);

// Tries the rewards on a prompt with made-up completions (rl/reward_trial.h), before anything is generated. Throws
// Error.
void try_rewards(const GenerateOptions& options, const GeneratePrompt& prompt);

}  // namespace hone
