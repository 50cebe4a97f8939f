// Control groups (version 2), which limit all processes of a program together.
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
  std::uint64_t memory_bytes = 0;  // with the files that they write
  std::int64_t processes = 0;      // with threads
};

// Groups below the one that this process is in, each for one program at a time, with as much of processors as one
// processor has. Any thread may call.
class ControlGroups {
 public:
  // Null where this process has not been handed its group (systemd's Delegate=yes, a container with a writable
  // /sys/fs/cgroup), where other processes are in it, or where the system counts neither memory nor processors by it.
  // All callers share one. As long as it lives this process is in a group of its own, since one with groups below it
  // may have no processes.
  [[nodiscard]] static std::shared_ptr<ControlGroups> create();
  // In this folder, which is a group without processes.
  explicit ControlGroups(std::string folder) : folder_(std::move(folder)) {}
  ~ControlGroups();
  ControlGroups(const ControlGroups&) = delete;
  ControlGroups& operator=(const ControlGroups&) = delete;

  // A group that a program begins in, free again for another one when this goes.
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
    // A process that writes 0 to it is in the group from then on, with all that it starts; -1 where there is no group.
    [[nodiscard]] int processes() const { return processes_.open() ? processes_.number() : -1; }

   private:
    friend class ControlGroups;
    ControlGroups* groups_ = nullptr;
    std::size_t index_ = 0;
    Descriptor processes_;
  };

  // Throws Error where the system makes no such group.
  [[nodiscard]] Place take(const ControlGroupLimits& limits);

 private:
  [[nodiscard]] std::string path_of(std::size_t index) const;
  void free(std::size_t index);

  std::string folder_;
  std::mutex mutex_;
  std::vector<bool> taken_;
};

}  // namespace hone
