// A program and the world it is to see, on its way to the process that makes both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sandbox/runner.h"
#include "system/child.h"

namespace hone {

enum class MountKind : std::uint8_t { read_only, device, pipe };

struct LaunchMount {
  MountKind kind = MountKind::read_only;
  std::string from;  // on this machine: a folder, with what is mounted below it, or a file
  std::string to;    // in the sandbox
};

struct LaunchLink {
  std::string target;
  std::string path;  // in the sandbox
};

// What all programs see, besides /proc and /tmp.
struct World {
  std::vector<LaunchMount> mounts;
  std::vector<LaunchLink> links;
};

struct LaunchPlan {
  std::vector<std::string> arguments;    // the first is an absolute path
  std::vector<std::string> environment;  // NAME=VALUE
  World world;
  std::vector<SandboxFile> files;  // in /tmp, where the program starts
  std::vector<SandboxPipe> pipes;  // in /tmp
  std::vector<ResourceLimit> limits;
  std::uint64_t disk_bytes = 0;  // of /tmp
  std::string filter;            // seccomp_filter()
};

[[nodiscard]] std::string encode(const LaunchPlan& plan);
// Of what encode() gave; files point into `bytes`.
[[nodiscard]] LaunchPlan decode_plan(std::string_view bytes);

}  // namespace hone
