#include "sandbox/control_groups.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

constexpr const char* kRoot = "/sys/fs/cgroup";
constexpr std::string_view kOwnName = "hone-";              // followed by the id of this process
constexpr std::string_view kProgramName = "hone-program-";  // followed by that id and the index of the group
constexpr std::uint64_t kRoomOfKernel = 32ULL << 20;        // bytes for the kernel's own memory of the processes
constexpr std::string_view kControllers = "memory cpu pids";
constexpr int kMostWaits = 20;  // to remove groups in which the programs of a killed process still end: 1 s together
constexpr std::chrono::milliseconds kWait{50};
constexpr const char* kOneProcessor = "100000 100000";  // cpu.max: quota and period in microseconds

bool put_text(const std::string& path, std::string_view text) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file.open() && write(file.number(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::string text_in_file(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> bytes{};
  // A file of the kernel, whose reading does not block. NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection)
  const ssize_t count = file.open() ? read(file.number(), bytes.data(), bytes.size()) : 0;
  return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
}

// Returns the directory of the control group of this process; nothing if cgroup version 2 is not mounted.
std::optional<std::string> own_group() {
  struct statfs status{};
  if (statfs(kRoot, &status) != 0 || status.f_type != CGROUP2_SUPER_MAGIC) return std::nullopt;
  for (const std::string& line : split(text_in_file("/proc/self/cgroup"), '\n')) {
    if (line.starts_with("0::/")) return kRoot + (line == "0::/" ? std::string() : line.substr(3));
  }
  return std::nullopt;
}

// Returns true if this process may manage the group. Root can write to every group, including those that another
// manager such as systemd controls; for root the group must therefore be marked as delegated or be the root group.
bool is_handed_over(const std::string& folder) {
  if (access((folder + "/cgroup.procs").c_str(), W_OK) != 0) return false;
  if (access((folder + "/cgroup.subtree_control").c_str(), W_OK) != 0) return false;
  if (folder == kRoot || geteuid() != 0) return true;
  for (const char* name : {"user.delegate", "trusted.delegate"}) {
    char value = '0';
    if (getxattr(folder.c_str(), name, &value, 1) == 1 && value == '1') return true;
  }
  return false;
}

// Returns true if all controllers of kControllers are available in the group.
bool counts(const std::string& folder) {
  const std::vector<std::string> names = split(trim(text_in_file(folder + "/cgroup.controllers")), ' ');
  const auto has = [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); };
  return std::ranges::all_of(split(kControllers, ' '), has);
}

// Returns the controllers that are not yet enabled for child groups of this group.
std::vector<std::string> missing_controllers(const std::string& folder) {
  const std::vector<std::string> enabled = split(trim(text_in_file(folder + "/cgroup.subtree_control")), ' ');
  std::vector<std::string> missing = split(kControllers, ' ');
  std::erase_if(missing, [&](const std::string& name) { return std::ranges::find(enabled, name) != enabled.end(); });
  return missing;
}

// Enables ('+') or disables ('-') controllers for child groups by writing text such as "+memory +cpu".
bool switch_controllers(const std::string& folder, char sign, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += text_of(text.empty() ? "" : " ", sign, name);
  return text.empty() || put_text(folder + "/cgroup.subtree_control", text);
}

// Returns the path of the child group that this process moves to.
std::string own_part(const std::string& folder) { return text_of(folder, "/", kOwnName, getpid()); }

// Returns the process id in the name of a group of hone; 0 for other names.
pid_t process_in_name(std::string_view name) {
  if (!name.starts_with(kOwnName)) return 0;
  name.remove_prefix(name.starts_with(kProgramName) ? kProgramName.size() : kOwnName.size());
  return std::atoi(std::string(name).c_str());
}

// Returns true if the process is in its child group. The system may have given the id of a killed process to another.
bool holds(const std::string& folder, pid_t process) {
  const std::vector<std::string> found =
      split(text_in_file(text_of(folder, "/", kOwnName, process, "/cgroup.procs")), '\n');
  return std::ranges::find(found, std::to_string(process)) != found.end();
}

// Disables the controllers, moves this process back to `folder` and removes its child group, and the groups of other
// processes that have been killed meanwhile.
void leave(const std::string& folder, const std::vector<std::string>& switched_on) {
  (void)switch_controllers(folder, '-', switched_on);
  (void)put_text(folder + "/cgroup.procs", "0");
  (void)rmdir(own_part(folder).c_str());
  remove_groups_of_killed_processes(folder);
}

// Moves this process to its child group and enables the missing controllers, in this order: the kernel refuses to
// enable controllers while `folder` itself contains processes.
bool enter(const std::string& folder, const std::vector<std::string>& missing) {
  for (int tries = 0; !remove_groups_of_killed_processes(folder) && tries < kMostWaits; ++tries) {
    std::this_thread::sleep_for(kWait);
  }
  const std::string own = own_part(folder);
  bool has_moved = false;
  // Another process that starts at the same time may remove the group before this process is in it.
  for (int tries = 0; !has_moved && tries < 3; ++tries) {
    if (mkdir(own.c_str(), 0755) != 0 && errno != EEXIST) return false;
    has_moved = put_text(own + "/cgroup.procs", "0");
  }
  if (has_moved && switch_controllers(folder, '+', missing)) return true;
  leave(folder, {});
  return false;
}

}  // namespace

bool remove_groups_of_killed_processes(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;  // all of them first: removal would change what the iterator runs over
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory(error)) names.push_back(entry.path().filename().string());
  }
  // A group of a process that is in hone-PID is in use or soon will be.
  std::erase_if(names, [&](const std::string& name) {
    const pid_t process = process_in_name(name);
    return process <= 0 || holds(folder, process);
  });
  bool are_empty = true;
  for (const std::string& name : names) {
    if (rmdir(text_of(folder, "/", name).c_str()) != 0 && errno == EBUSY) are_empty = false;
  }
  return are_empty;
}

std::shared_ptr<ControlGroups> ControlGroups::create() {
  static std::mutex mutex;
  static std::weak_ptr<ControlGroups> shared;
  const std::scoped_lock lock(mutex);
  if (std::shared_ptr<ControlGroups> found = shared.lock()) return found;
  const std::optional<std::string> folder = own_group();
  if (!folder || !is_handed_over(*folder) || !counts(*folder)) return nullptr;
  const std::vector<std::string> missing = missing_controllers(*folder);
  if (!enter(*folder, missing)) return nullptr;
  std::shared_ptr<ControlGroups> made(new ControlGroups(*folder), [folder, missing](ControlGroups* groups) {
    delete groups;
    leave(*folder, missing);
  });
  shared = made;
  return made;
}

ControlGroups::~ControlGroups() {
  for (std::size_t i = 0; i < taken_.size(); ++i) (void)rmdir(path_of(i).c_str());
}

std::string ControlGroups::path_of(std::size_t index) const {
  return text_of(folder_, "/", kProgramName, getpid(), "-", index);
}

ControlGroups::Place ControlGroups::take(const ControlGroupLimits& limits) {
  std::size_t index = 0;
  {
    const std::scoped_lock lock(mutex_);
    while (index < taken_.size() && taken_[index]) ++index;
    if (index == taken_.size()) taken_.push_back(false);
    taken_[index] = true;
  }
  const std::string path = path_of(index);
  Place place(this, index);
  const auto set = [&](const char* name, const std::string& value, bool must) {
    if (!put_text(path + "/" + name, value) && must) throw Error(path + "/" + name, std::strerror(errno));
  };
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) throw Error(path, std::strerror(errno));
  set("memory.max", std::to_string(limits.memory_bytes + kRoomOfKernel), true);
  set("memory.swap.max", "0", false);  // the file does not exist on a system without swap
  set("memory.oom.group", "1", true);
  set("pids.max", std::to_string(limits.processes + 4), true);
  set("cpu.max", kOneProcessor, true);
  place.processes_ = Descriptor(open((path + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  if (!place.processes_.open()) throw Error(path + "/cgroup.procs", std::strerror(errno));
  return place;
}

void ControlGroups::free(std::size_t index) {
  const std::scoped_lock lock(mutex_);
  taken_[index] = false;
}

}  // namespace hone
