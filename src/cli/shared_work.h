// The work of generate and eval divided over processes with separate devices (data_parallel_size).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "cli/engine_job.h"
#include "cli/replica_processes.h"
#include "data/shared_journal.h"

namespace hone {

// Runs a command as run_engine_job() does, also in a process that has a share of another's work. lead() gets the place
// of such a process, and null in others.
int run_shared_job(const EngineJob& job, const LoadPart& load,
                   const std::function<int(EngineGroup* group, const ReplicaPlace* place)>& lead);
[[nodiscard]] Share share_of(const ReplicaPlace& place);
// Starts the processes that have the shares after the first. folder: a temporary one. Divides the CPU's threads.
[[nodiscard]] std::unique_ptr<OtherShares> start_other_shares(const ReplicaPlan& plan,
                                                              const std::filesystem::path& folder);

}  // namespace hone
