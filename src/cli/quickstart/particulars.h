// What a quickstart's page tells beside its figures: how they came about, and one question as every stage answers it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "cli/quickstart/report.h"

namespace hone {

// "2026-11-22 18:40 UTC", the machine, the seed, the sizes of model and data, as a list in HTML. The data's sizes are
// the rows of the files in ROOT/data.
[[nodiscard]] std::string particulars_html(const std::filesystem::path& root, std::span<const QuickstartStage> stages,
                                           const QuickstartSetting& setting);

// A held-out question that the last stage answers rightly and, where there is one, the first does not, with each
// stage's answer, in HTML; empty where no question was put to all stages.
[[nodiscard]] std::string question_html(std::span<const QuickstartStage> stages);

}  // namespace hone
