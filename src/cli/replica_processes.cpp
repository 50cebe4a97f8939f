#include "cli/replica_processes.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <utility>

#include "backend/gpu.h"
#include "core/error.h"
#include "core/files.h"
#include "core/job_log.h"
#include "core/strings.h"
#include "system/child.h"
#include "system/launcher.h"
#include "system/peers.h"
#include "system/poll.h"
#include "system/process.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kVariable = "HONE_REPLICA";  // NUMBER/COUNT:FOLDER

fs::path error_path(const fs::path& folder, int number) { return folder / text_of(number, ".error"); }

// Throws Error unless each replica can have its own GPUs. Returns false if they run on the CPU.
bool check_gpus(const ReplicaPlan& plan) {
  const int gpus = plan.device == DeviceChoice::kCpu ? 0 : gpu_count();
  if (gpus == 0) return false;  // device cuda: each replica says why it cannot be used
  const std::int64_t needed = plan.count * plan.gpus_each;
  if (gpus >= needed) return true;
  throw Error("data_parallel_size",
              text_of("is ", plan.count, " and tensor_parallel_size ", plan.gpus_each, ", but this process sees ", gpus,
                      gpus == 1 ? " GPU" : " GPUs"),
              text_of("they need ", needed));
}

// gpus: of the replica; 0: it runs on the CPU.
std::vector<std::string> environment_of(const ReplicaPlace& place, std::int64_t gpus) {
  std::vector<std::string> all = environment_of_one(place.count);
  if (gpus > 0) {
    std::erase_if(all, [](const std::string& variable) { return variable.starts_with("CUDA_VISIBLE_DEVICES="); });
    const std::string visible = environment_variable("CUDA_VISIBLE_DEVICES");
    all.push_back(text_of("CUDA_VISIBLE_DEVICES=", devices_of_replica(visible, place.number, gpus)));
  }
  all.push_back(text_of(kVariable, "=", place.number, "/", place.count, ":", place.folder.string()));
  return all;
}

}  // namespace

std::optional<ReplicaPlace> replica_place() {
  const std::string text = environment_variable(kVariable);
  if (text.empty()) return std::nullopt;
  ReplicaPlace place;
  const char* const end = text.data() + text.size();
  const auto number = std::from_chars(text.data(), end, place.number);
  const bool has_number = number.ec == std::errc() && number.ptr != end && *number.ptr == '/';
  const auto count = std::from_chars(has_number ? number.ptr + 1 : end, end, place.count);
  if (!has_number || count.ec != std::errc() || count.ptr == end || *count.ptr != ':' || place.number < 0 ||
      place.number >= place.count) {
    throw Error(kVariable, text_of("is ", shown(text)), "unset it; hone sets it for the processes that it starts");
  }
  place.folder = std::string(count.ptr + 1, end);
  return place;
}

int run_replica(const ReplicaPlace& place, const std::function<int()>& work) {
  if (place.number > 0) set_silent(true);  // the first one says the same
  try {
    return work();
  } catch (const JobFailure&) {
    throw;
  } catch (const Error& error) {
    write_file(error_path(place.folder, place.number), error.what());
    throw JobFailure("", error.what(), {}, true);
  }
}

std::string devices_of_replica(std::string_view visible, int number, std::int64_t each) {
  const std::vector<std::string> names = visible.empty() ? std::vector<std::string>() : split(visible, ',');
  std::string devices;
  for (std::int64_t i = number * each; i < (number + 1) * each; ++i) {
    if (!devices.empty()) devices += ',';
    devices += names.empty() ? std::to_string(i) : names.at(static_cast<std::size_t>(i));
  }
  return devices;
}

ReplicaProcesses::ReplicaProcesses(const ReplicaPlan& plan, const fs::path& folder) : folder_(folder) {
  const bool has_gpus = check_gpus(plan);
  for (int r = plan.first; r < plan.count; ++r) {
    Replica replica;
    replica.number = r;
    replica.id = start_child({.executable = "/proc/self/exe",
                              .arguments = own_arguments(),
                              .environment = environment_of({.number = r, .count = plan.count, .folder = folder},
                                                            has_gpus ? plan.gpus_each : 0),
                              .folder = {},
                              .descriptors = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO},
                              .limits = {},
                              .dies_with_thread = true,
                              .spare_from_oom = true});
    replica.process = open_process(replica.id);
    replicas_.push_back(std::move(replica));
  }
}

ReplicaProcesses::~ReplicaProcesses() {
  for (const Replica& replica : replicas_) {
    if (!replica.ended) kill_process(replica.process);
  }
  for (const Replica& replica : replicas_) {
    if (!replica.ended) (void)wait_for_child(replica.id);
  }
}

void ReplicaProcesses::wait(std::chrono::milliseconds limit) {
  std::vector<pollfd> waits;
  for (const Replica& replica : replicas_) {
    if (!replica.ended) waits.push_back({replica.process.number(), POLLIN, 0});
  }
  if (waits.empty() || poll_until(waits, Clock::now() + limit) == 0) return;
  for (Replica& replica : replicas_) {
    const auto of = std::ranges::find(waits, replica.process.number(), &pollfd::fd);
    if (!replica.ended && of->revents != 0) reap(replica);
  }
}

void ReplicaProcesses::reap(Replica& replica) {
  const int status = wait_for_child(replica.id);
  replica.ended = true;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const std::string name = text_of("replica ", replica.number);
  if (const fs::path path = error_path(folder_, replica.number); is_file(path)) throw Error(name, read_file(path));
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  throw Error(name, signal != 0 ? text_of("was ended by signal ", signal, " (", ::strsignal(signal), ")")
                                : text_of("ended with exit code ", WEXITSTATUS(status)));
}

std::size_t ReplicaProcesses::running() const {
  return static_cast<std::size_t>(std::ranges::count(replicas_, false, &Replica::ended));
}

void ReplicaProcesses::stop(std::chrono::milliseconds limit) {
  for (const Replica& replica : replicas_) {
    if (!replica.ended) ::kill(replica.id, SIGTERM);
  }
  const Clock::time_point end = Clock::now() + limit;
  for (Replica& replica : replicas_) {
    if (replica.ended || !wait_readable(replica.process.number(), end)) continue;
    (void)wait_for_child(replica.id);
    replica.ended = true;
  }
}

}  // namespace hone
