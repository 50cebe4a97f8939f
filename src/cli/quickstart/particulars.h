// Writes the parts of the quickstart's report page that are not figures: how the run was set up, and one question with
// the answer of each stage.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "cli/quickstart/report.h"

namespace hone {

// Returns an HTML list of the current date ("2026-11-22 18:40 UTC"), the machine, the seed, the number of parameters
// and the sizes of the data sets, which are the numbers of lines of the files in ROOT/data.
[[nodiscard]] std::string run_details_html(const std::filesystem::path& root, std::span<const QuickstartStage> stages,
                                           const QuickstartSetting& setting);

// Returns, as HTML, a held-out question with the answer of each stage. Prefers a question that the last stage answers
// correctly and the first does not. Returns an empty string if no question was given to all stages.
[[nodiscard]] std::string question_html(std::span<const QuickstartStage> stages);

}  // namespace hone
