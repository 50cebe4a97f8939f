// Paths of this machine that programs in a sandbox may read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sandbox/launch_plan.h"

namespace hone {

// Returns the mounts and links of every sandbox: programs, libraries and headers of /usr, the links to them in the root
// folder, /etc/alternatives, the linker's cache, the time zone, and the devices null, zero, random and urandom. Other
// folders of /usr are left out, because containers often keep a project in /usr/src/app.
[[nodiscard]] World make_world();

// Returns the paths below a Python prefix that the interpreter needs (bin, lib, lib64, include, pyvenv.cfg) and that
// make_world() does not contain. The prefix itself is not readable as a whole, because a virtual environment may be in
// the folder of a project.
[[nodiscard]] std::vector<std::string> readable_parts(const std::string& prefix);

// Throws Error, naming both paths, if one of `hidden`, the working directory, the home directory or a cache directory
// that the environment names (HF_HOME, HF_HUB_CACHE, XDG_CACHE_HOME, HONE_CACHE) is below one of `shown`.
void check_hidden(std::span<const std::string> hidden, std::span<const std::string> shown);

}  // namespace hone
