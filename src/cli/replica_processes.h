// Copies of this process, with the same arguments and separate devices: replicas of a server
// (cli/serve/replicas.h), or processes that have a share of an evaluation's or a generation's work (cli/shared_work.h).
// The variable HONE_REPLICA makes a process one of them. It may itself start a tensor group.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "core/descriptor.h"

namespace hone {

// The place of a process among replicas.
struct ReplicaPlace {
  int number = 0;
  int count = 1;
  std::filesystem::path folder;  // in which replicas tell the process that has started them what it needs to know
};

// Returns the place of this process; nullopt if no other has started it as a replica. Throws Error if the variable is
// wrong.
[[nodiscard]] std::optional<ReplicaPlace> replica_place();
// Runs a replica and returns the exit code. An Error that `work` throws is reported by the process that has started it.
int run_replica(const ReplicaPlace& place, const std::function<int()>& work);

// Returns the GPUs of a replica, as CUDA_VISIBLE_DEVICES names them: `each` of those that `visible`, the variable of
// the process that starts it, names. Unset, it sees all.
[[nodiscard]] std::string devices_of_replica(std::string_view visible, int number, std::int64_t each);

struct ReplicaPlan {
  int count = 1;                                   // of replicas
  int first = 0;                                   // number of the first that is to be started
  std::int64_t gpus_each = 1;                      // on a machine with GPUs
  DeviceChoice device = DeviceChoice::kAutomatic;  // of a replica
};

// Replicas, which are killed unless they have ended or stop() has ended them. For use by the thread that has made it.
class ReplicaProcesses {
 public:
  // Starts them. Replica r has the GPUs from r x gpus_each on, of those that this process sees. Throws Error if there
  // are too few.
  ReplicaProcesses(const ReplicaPlan& plan, const std::filesystem::path& folder);
  ReplicaProcesses(const ReplicaProcesses&) = delete;
  ReplicaProcesses& operator=(const ReplicaProcesses&) = delete;
  ~ReplicaProcesses();

  // Waits until one ends, a signal arrives or `limit` has passed. Throws Error if one has ended with another code than
  // 0.
  void wait(std::chrono::milliseconds limit);
  // Returns the number of those that have not ended, as wait() has seen it.
  [[nodiscard]] std::size_t running() const;
  // Sends SIGTERM to all and waits until they have ended, at most this long.
  void stop(std::chrono::milliseconds limit);

 private:
  struct Replica {
    int number = 0;
    pid_t id = 0;
    Descriptor process;  // a pidfd
    bool ended = false;  // and reaped
  };
  void reap(Replica& replica);

  std::filesystem::path folder_;
  std::vector<Replica> replicas_;
};

}  // namespace hone
