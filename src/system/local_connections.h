// Connections between the ranks of a job on one machine, over AF_UNIX sockets, which take less processor time than TCP
// connections.
#pragma once

#include <chrono>
#include <span>

#include "core/descriptor.h"

namespace hone {

// Replaces the blocking TCP connections between this rank and others, each of which makes the same call, by local ones
// where both are on the same machine. A rank that is not, or in another network namespace, keeps its connection.
//   connections: [ranks], that of this rank closed
// A rank that has ended, or does not answer before the deadline, is left for the next message to notice.
void use_local_connections(int rank, std::span<Descriptor> connections, std::chrono::steady_clock::time_point deadline);

}  // namespace hone
