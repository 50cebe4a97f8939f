// The work of generate and eval divided over processes with separate devices (data_parallel_size).
#pragma once

#include <memory>

#include "cli/replica_processes.h"
#include "core/files.h"
#include "data/shared_journal.h"

namespace hone {

// Starts the processes that have the shares after the first. folder: a temporary one. Divides the CPU's threads.
[[nodiscard]] std::unique_ptr<OtherShares> start_other_shares(const ReplicaPlan& plan,
                                                              const std::filesystem::path& folder);

}  // namespace hone
