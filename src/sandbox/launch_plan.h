// Describes a program and the file tree of its sandbox, and encodes both for the process that creates the sandbox.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sandbox/runner.h"
#include "system/child.h"

namespace hone {

enum class MountKind : std::uint8_t {
  kReadOnly,  // files and folders; device nodes on the mount do not work
  kDevice,    // a device node
  kPipe       // a named pipe, which may be written
};

struct LaunchMount {
  MountKind kind = MountKind::kReadOnly;
  std::string from;  // path on this machine: a file, or a folder including the mounts below it
  std::string to;    // path in the sandbox
};

struct LaunchLink {
  std::string target;
  std::string path;  // path of the symbolic link in the sandbox
};

// Mounts and symbolic links that every sandbox contains, in addition to /proc and /tmp.
struct World {
  std::vector<LaunchMount> mounts;
  std::vector<LaunchLink> links;
};

struct LaunchPlan {
  std::vector<std::string> arguments;    // the first is the path of the executable
  std::vector<std::string> environment;  // NAME=VALUE
  World world;
  std::vector<SandboxFile> files;  // placed in /tmp, the working directory of the program
  std::vector<SandboxPipe> pipes;  // placed in /tmp
  std::vector<ResourceLimit> limits;
  std::uint64_t disk_bytes = 0;  // size of the tmpfs at /tmp
  std::string filter;            // BPF program from seccomp_filter()
};

// Serializes a plan for decode_plan() in a process of the same executable; the format is not portable.
[[nodiscard]] std::string encode(const LaunchPlan& plan);
// Decodes the result of encode(). The contents of the files are views into `bytes`.
[[nodiscard]] LaunchPlan decode_plan(std::string_view bytes);

}  // namespace hone
