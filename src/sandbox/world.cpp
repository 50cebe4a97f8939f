#include "sandbox/world.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "system/process.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

// Adds a path of this machine to the world: as a link if it is a symbolic link, otherwise as a mount if it is readable.
void show(World& world, const std::string& path) {
  std::error_code error;
  if (fs::is_symlink(path, error)) {
    world.links.push_back({fs::read_symlink(path, error).string(), path});
  } else if (access(path.c_str(), R_OK) == 0) {
    world.mounts.push_back(
        {fs::is_character_file(path, error) ? MountKind::kDevice : MountKind::kReadOnly, path, path});
  }
}

// Resolves the symbolic links in the part of the path that exists.
fs::path real_path(const std::string& path) {
  std::error_code error;
  fs::path real = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? fs::path(path) : real;
}

bool lies_below(const fs::path& path, const fs::path& folder) {
  const auto [at, unused] = std::ranges::mismatch(folder, path);
  return at == folder.end();
}

}  // namespace

World make_world() {
  World world;
  for (const std::string name : {"bin", "lib", "lib32", "lib64", "libexec", "include", "share/zoneinfo", "local/bin",
                                 "local/lib", "local/lib64", "local/include"}) {
    show(world, "/usr/" + name);
  }
  for (const std::string name : {"/bin", "/sbin", "/lib", "/lib32", "/lib64"}) show(world, name);
  for (const std::string name : {"/etc/alternatives", "/etc/ld.so.cache"}) show(world, name);
  // The time zone: usually a link to a file in /usr/share/zoneinfo.
  show(world, "/etc/localtime");
  for (const std::string device : {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"}) show(world, device);
  world.links.insert(world.links.end(), {{"/proc/self/fd", "/dev/fd"},
                                         {"/proc/self/fd/0", "/dev/stdin"},
                                         {"/proc/self/fd/1", "/dev/stdout"},
                                         {"/proc/self/fd/2", "/dev/stderr"}});
  return world;
}

std::vector<std::string> readable_parts(const std::string& prefix) {
  std::vector<std::string> parts;
  if (!prefix.starts_with('/')) return parts;
  const World world = make_world();
  for (const std::string name : {"bin", "lib", "lib64", "include", "pyvenv.cfg"}) {
    const std::string part = (fs::path(prefix) / name).string();
    const auto shows = [&](const LaunchMount& mount) { return lies_below(part, mount.from); };
    const bool is_shown = std::ranges::any_of(world.mounts, shows);
    if (!is_shown && access(part.c_str(), R_OK) == 0) parts.push_back(part);
  }
  return parts;
}

void check_hidden(std::span<const std::string> hidden, std::span<const std::string> shown) {
  std::vector<std::pair<std::string, std::string>> all;  // description and path
  for (const std::string& path : hidden) {
    if (!path.empty()) all.emplace_back("data or output", path);
  }
  std::error_code error;
  all.emplace_back("the working directory", fs::current_path(error).string());
  for (const char* name : {"HOME", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HONE_CACHE"}) {
    all.emplace_back(name, environment_variable(name));
  }
  for (const auto& [what, path] : all) {
    if (path.empty()) continue;
    for (const std::string& folder : shown) {
      if (!lies_below(real_path(path), real_path(folder))) continue;
      throw Error("the sandbox for programs",
                  text_of(path, " (", what, ") is below ", folder, ", which the programs in completions may read"),
                  "move it elsewhere: a program that can read the answers need not solve the problem");
    }
  }
}

}  // namespace hone
