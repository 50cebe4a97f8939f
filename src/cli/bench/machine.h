// Describes the machine that figures come from.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"

namespace hone {

// Returns names and values in the order in which a page shows them: device, its memory, processor, cores, threads,
// memory, system, version and commit of hone, date.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> describe_machine(const Device& device);

}  // namespace hone
