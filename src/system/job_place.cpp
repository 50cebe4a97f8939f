#include "system/job_place.h"

#include <charconv>
#include <optional>

#include "core/error.h"
#include "system/process.h"

namespace hone {
namespace {

constexpr int kMostProcesses = 1 << 20;
constexpr int kMostPorts = 65535;

// Returns the number in an environment variable; nullopt if it is not set. Throws Error if it is no number in
// [least, most].
std::optional<int> number_in(const char* name, int least, int most) {
  const std::string text = environment_variable(name);
  if (text.empty()) return std::nullopt;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most) {
    throw Error(name, text_of("expected a number from ", least, " to ", most, ", saw '", text, "'"),
                "the launcher sets it");
  }
  return number;
}

// Names of the variables of a launcher. A job is recognized by `size`.
struct LauncherNames {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* key;      // names the job
  const char* address;  // of rank 0, if MASTER_ADDR is not set; null: none
};
constexpr LauncherNames kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", nullptr},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "PMIX_NAMESPACE", nullptr},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID",
     "SLURM_LAUNCH_NODE_IPADDR"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_ID", nullptr},
};

int required_number(const char* name, const char* size, int least, int most) {
  const std::optional<int> number = number_in(name, least, most);
  if (!number) throw Error(name, text_of("is not set, but ", size, " is"), "the launcher sets both");
  return *number;
}

// Returns the processes of this machine. Slurm lists them as "4(x2),3".
int local_size_of(const LauncherNames& names, const JobPlace& place) {
  const std::string text = environment_variable(names.local_size);
  if (text.empty()) return place.local_rank + 1 > place.size ? place.size : place.local_rank + 1;
  int number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number > place.local_rank && number <= place.size ? number : place.local_rank + 1;
}

}  // namespace

JobPlace job_place() {
  JobPlace place;
  for (const LauncherNames& names : kLaunchers) {
    const std::optional<int> size = number_in(names.size, 1, kMostProcesses);
    if (!size) continue;
    place.size = *size;
    if (*size == 1) return place;
    place.rank = required_number(names.rank, names.size, 0, *size - 1);
    place.local_rank = number_in(names.local_rank, 0, *size - 1).value_or(place.rank);
    place.local_size = local_size_of(names, place);
    place.key = environment_variable("HONE_JOB_KEY");
    if (place.key.empty()) place.key = environment_variable(names.key);
    std::string address = environment_variable("MASTER_ADDR");
    if (address.empty() && names.address != nullptr) address = environment_variable(names.address);
    if (address.empty() && place.local_size < place.size) {
      throw Error("MASTER_ADDR", text_of("is not set, and the ", place.size, " processes are on several machines"),
                  "set it to the address of the machine of rank 0");
    }
    if (!address.empty()) place.address = address;
    int port = number_in("MASTER_PORT", 1, kMostPorts).value_or(kDefaultMasterPort);
    if (environment_variable("TORCHELASTIC_USE_AGENT_STORE") == "True") port = port % kMostPorts + 1;
    place.port = static_cast<std::uint16_t>(port);
    place.listener = number_in("HONE_JOB_LISTENER", 3, 1 << 20).value_or(-1);
    return place;
  }
  return place;
}

}  // namespace hone
