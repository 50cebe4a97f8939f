// Prints completions of a finished or running `hone grpo`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace hone {

// Returns the completions that write_completions wrote in `run`, an output_dir: each prompt once, then its completions
// with their rewards, at most `most` completions. step: "12" for a training step, "eval-12" for an evaluation, "" for
// the last training step. Throws Error that names the available steps if this one is missing.
[[nodiscard]] std::string format_completions(const std::filesystem::path& run, std::string_view step,
                                             std::optional<std::int64_t> most);

}  // namespace hone
