// Place of this process in a job of several processes, as its launcher states it in the environment.
#pragma once

#include <cstdint>
#include <string>

namespace hone {

// Processes of a job have ranks 0 to size - 1. A process without a launcher is the only one of its job.
struct JobPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // rank among the processes of this machine
  int local_size = 1;
  std::string address = "127.0.0.1";  // of rank 0: a name or an IPv4 address
  std::uint16_t port = 0;             // where rank 0 waits for the others
  std::string key;                    // processes with another key are refused
  int listener = -1;                  // descriptor of rank 0's listening socket, from the launcher; -1: none

  [[nodiscard]] bool is_job() const { return size > 1; }
};

inline constexpr std::uint16_t kDefaultMasterPort = 29500;  // torchrun's

// Reads the variables of the first launcher that has set any: hone or torchrun (RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), Open MPI's mpirun, Slurm's srun, and other implementations of MPI
// (PMI_RANK, PMI_SIZE). MASTER_ADDR and MASTER_PORT hold for each of them; MASTER_ADDR may be unset if all processes
// are on this machine, or with srun from a batch script. The key is HONE_JOB_KEY, otherwise the launcher's name of the
// job. If torchrun's agent listens on MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE), the job uses the next port.
// Throws Error that names the variable if one is missing or no number.
[[nodiscard]] JobPlace job_place();

}  // namespace hone
