// What programs in a sandbox may read of this machine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sandbox/launch_plan.h"

namespace hone {

// Programs, libraries and headers of /usr, the links to them in the root folder, what the linker and the links of
// /usr/bin lead to, and devices that hold nothing. Nothing else of /usr: /usr/src/app is where containers keep a
// project.
[[nodiscard]] World make_world();

// The folders and the file of a Python's prefix that it runs with: an environment may lie in a project's own folder.
[[nodiscard]] std::vector<std::string> readable_parts(const std::string& prefix);

// Throws Error that names both where one of `hidden`, the working folder, the home folder or a cache that the
// environment names lies below one of `shown`.
void check_hidden(std::span<const std::string> hidden, std::span<const std::string> shown);

}  // namespace hone
