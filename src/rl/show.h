// Completions of a run that is over or still going, for reading.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace hone {

// What write_completions left in `run` (an output_dir) of a step: "12", of an evaluation: "eval-12", or "" for the last
// step. Each prompt once, then its completions with what they earned, at most `most` of them. Throws Error that names
// the steps which are there.
[[nodiscard]] std::string show_completions(const std::filesystem::path& run, std::string_view step,
                                           std::optional<std::int64_t> most);

}  // namespace hone
