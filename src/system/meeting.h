// Connects the processes of a job with each other: all connect to rank 0, which checks their key and their number and
// tells them where the others listen; then each connects to every rank below its own. Ranks on one machine then change
// to local connections (local_connections.h).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/descriptor.h"
#include "system/job_place.h"
#include "system/sockets.h"

namespace hone {

// The connections of one rank; [size] each.
struct Meeting {
  std::vector<Descriptor> connections;  // non-blocking stream sockets; closed for the rank itself
  std::vector<std::string> hosts;
};

// Meets the other ranks. Throws Error if one does not come before the deadline, rank 0's port is in use, or rank 0
// refuses this process.
[[nodiscard]] Meeting meet(const JobPlace& place, std::chrono::steady_clock::time_point deadline);

// Listens on a port of this machine, 0 for any. `loopback`: not reachable from other machines. Throws Error that names
// the port if it is in use.
[[nodiscard]] Listener listen_on(std::uint16_t port, bool loopback);

}  // namespace hone
