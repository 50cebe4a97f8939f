// Control groups (cgroup version 2) that limit the memory, processes and CPU time of a program as a whole.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/descriptor.h"

namespace hone {

struct ControlGroupLimits {
  std::uint64_t memory_bytes = 0;  // of all processes together, including the files that they write to tmpfs
  std::int64_t processes = 0;      // processes and threads
};

// Removes the groups below `folder`, the directory of a control group, that killed processes of hone have left there:
// those with hone's names whose process is not in its group hone-PID. Keeps groups that contain processes. Returns
// false if it kept one for that reason, because a program of a killed process may still be ending.
bool remove_groups_of_killed_processes(const std::string& folder);

// Creates control groups below the one of this process and lends each to one program at a time. All processes of a
// program together get the CPU time of one processor. Thread-safe.
class ControlGroups {
 public:
  // Returns the object that all callers in this process share. Returns null if the cgroup of this process is not
  // delegated to it (systemd's Delegate=yes, or a container with a writable /sys/fs/cgroup), if other processes are in
  // it, or if it lacks the memory, cpu or pids controller. While the object exists this process is in a child group
  // named hone-PID, because the kernel does not allow processes in a group that has child groups with controllers.
  [[nodiscard]] static std::shared_ptr<ControlGroups> create();
  // Uses `folder`, the directory of a control group without processes.
  explicit ControlGroups(std::string folder) : folder_(std::move(folder)) {}
  ~ControlGroups();
  ControlGroups(const ControlGroups&) = delete;
  ControlGroups& operator=(const ControlGroups&) = delete;

  // Control group lent to one program. The destructor makes it available to another program.
  class Place {
   public:
    Place() = default;
    Place(ControlGroups* groups, std::size_t index) : groups_(groups), index_(index) {}
    Place(Place&& other) noexcept
        : groups_(std::exchange(other.groups_, nullptr)),
          index_(other.index_),
          processes_(std::move(other.processes_)) {}
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (groups_ != nullptr) groups_->free(index_);
    }
    // Descriptor of cgroup.procs; -1 if there is no group. A process that writes 0 to it joins the group, together with
    // all processes that it starts afterwards.
    [[nodiscard]] int processes() const { return processes_.open() ? processes_.number() : -1; }

   private:
    friend class ControlGroups;
    ControlGroups* groups_ = nullptr;
    std::size_t index_ = 0;
    Descriptor processes_;
  };

  // Takes a group that is not in use, or creates one, and sets its limits. Throws Error if the kernel refuses.
  [[nodiscard]] Place take(const ControlGroupLimits& limits);

 private:
  [[nodiscard]] std::string path_of(std::size_t index) const;
  void free(std::size_t index);

  std::string folder_;
  std::mutex mutex_;
  std::vector<bool> taken_;
};

}  // namespace hone
