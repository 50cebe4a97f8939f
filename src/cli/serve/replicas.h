// The processes of `hone serve --data_parallel_size N`: replicas, which are servers on free ports of 127.0.0.1, and the
// front that gives them requests (serve/replicas.h).
#pragma once

#include <cstdint>
#include <string>

#include "cli/replica_processes.h"
#include "cli/serve/options.h"
#include "http/server.h"

namespace hone {

// Returns the options with those that only the front has as they are by default.
[[nodiscard]] ServeOptions options_of_replica(ServeOptions options);
// Tells the front that this replica takes requests. summary: of the model's limits, for the log.
void report_ready(const ReplicaPlace& place, std::uint16_t port, const std::string& summary);

// Starts the replicas and serves until a signal arrives or a replica ends. Throws Error if one fails, there are too few
// GPUs, or the address cannot be used.
int serve_replicas(const ServeOptions& options, HttpOptions http);

}  // namespace hone
