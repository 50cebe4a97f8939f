#include "cli/serve/replicas.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "backend/gpu.h"
#include "checkpoint/model_directory.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/job_log.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "http/relay.h"
#include "serve/replicas.h"
#include "system/child.h"
#include "system/launcher.h"
#include "system/peers.h"
#include "system/poll.h"
#include "system/process.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kVariable = "HONE_REPLICA";         // NUMBER/COUNT:FOLDER
constexpr auto kLook = std::chrono::milliseconds(50);     // between looks for a signal or the end of a replica
constexpr auto kSettle = std::chrono::milliseconds(200);  // until requests that the front has read are at a replica
constexpr auto kEndLimit = std::chrono::seconds(10);      // for a replica to end after its requests have

fs::path ready_path(const fs::path& folder, int number) { return folder / text_of(number, ".json"); }
fs::path error_path(const fs::path& folder, int number) { return folder / text_of(number, ".error"); }

struct ReadyReplica {
  std::uint16_t port = 0;
  std::string summary;
};

// The GPUs of replica `number`, as CUDA_VISIBLE_DEVICES names them: the next ones of those that this process sees.
std::string devices_of(int number, std::int64_t each) {
  const std::string visible = environment_variable("CUDA_VISIBLE_DEVICES");
  const std::vector<std::string> names = visible.empty() ? std::vector<std::string>() : split(visible, ',');
  std::string devices;
  for (std::int64_t i = number * each; i < (number + 1) * each; ++i) {
    if (!devices.empty()) devices += ',';
    devices += names.empty() ? std::to_string(i) : names[static_cast<std::size_t>(i)];
  }
  return devices;
}

// Throws Error unless each replica can have its own GPUs. Returns false if they run on the CPU.
bool check_gpus(const ServeOptions& options) {
  const int gpus = options.device == DeviceChoice::kCpu ? 0 : gpu_count();
  if (gpus == 0) return false;  // device cuda: each replica says why it cannot be used
  const std::int64_t needed = options.data_parallel_size * options.tensor_parallel_size;
  if (gpus < needed) {
    throw Error("data_parallel_size",
                text_of("is ", options.data_parallel_size, " and tensor_parallel_size ", options.tensor_parallel_size,
                        ", but this process sees ", gpus, gpus == 1 ? " GPU" : " GPUs"),
                text_of("they need ", needed));
  }
  return true;
}

// Servers in processes of their own, which are killed unless stop() has ended them.
class Replicas {
 public:
  Replicas(const ServeOptions& options, fs::path folder) : folder_(std::move(folder)) {
    const bool has_gpus = check_gpus(options);
    const auto count = static_cast<int>(options.data_parallel_size);
    for (int r = 0; r < count; ++r) {
      Replica replica;
      replica.id = start_child({.executable = "/proc/self/exe",
                                .arguments = own_arguments(),
                                .environment = environment_of(r, count, has_gpus ? options.tensor_parallel_size : 0),
                                .folder = {},
                                .descriptors = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO},
                                .limits = {},
                                .dies_with_thread = true,
                                .spare_from_oom = true});
      replica.process = open_process(replica.id);
      replicas_.push_back(std::move(replica));
    }
  }
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;
  ~Replicas() {
    for (const Replica& replica : replicas_) {
      if (!replica.ended) kill_process(replica.process);
    }
    for (const Replica& replica : replicas_) {
      if (!replica.ended) (void)wait_for_child(replica.id);
    }
  }

  // Waits until all take requests. Returns nothing if a signal has arrived. Throws Error if one has ended.
  [[nodiscard]] std::vector<ReadyReplica> wait_until_ready() {
    std::vector<ReadyReplica> ready;
    while (ready.size() < replicas_.size()) {
      const fs::path path = ready_path(folder_, static_cast<int>(ready.size()));
      if (is_file(path)) {
        const Json said = read_json(path);
        ready.push_back({said.at("port").get<std::uint16_t>(), said.at("summary").get<std::string>()});
        continue;
      }
      if (interrupted()) return {};
      wait_a_moment();
    }
    return ready;
  }
  // Waits until a signal arrives. Throws Error if a replica has ended.
  void wait_for_signal() {
    while (!interrupted()) wait_a_moment();
  }
  // Has the replicas finish their requests and end; kills those that have not by `limit`.
  void stop(std::chrono::milliseconds limit) {
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

 private:
  struct Replica {
    pid_t id = 0;
    Descriptor process;  // a pidfd
    bool ended = false;  // and reaped
  };

  [[nodiscard]] std::vector<std::string> environment_of(int number, int count, std::int64_t gpus) const {
    std::vector<std::string> all;
    bool has_threads = false;
    for (std::string& variable : current_environment()) {
      if (gpus > 0 && variable.starts_with("CUDA_VISIBLE_DEVICES=")) continue;
      has_threads = has_threads || variable.starts_with("OMP_NUM_THREADS=");
      all.push_back(std::move(variable));
    }
    const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    if (!has_threads) all.push_back(text_of("OMP_NUM_THREADS=", std::max(1U, cores / static_cast<unsigned>(count))));
    if (gpus > 0) all.push_back(text_of("CUDA_VISIBLE_DEVICES=", devices_of(number, gpus)));
    all.push_back(text_of(kVariable, "=", number, "/", count, ":", folder_.string()));
    return all;
  }

  // Throws Error if a replica has ended.
  void wait_a_moment() {
    std::vector<pollfd> waits;
    for (const Replica& replica : replicas_) waits.push_back({replica.process.number(), POLLIN, 0});
    if (poll_until(waits, Clock::now() + kLook) == 0) return;
    for (std::size_t r = 0; r < waits.size(); ++r) {
      if (waits[r].revents != 0) throw_ended(r);
    }
  }

  [[noreturn]] void throw_ended(std::size_t index) {
    const int status = wait_for_child(replicas_[index].id);
    replicas_[index].ended = true;
    const auto number = static_cast<int>(index);
    if (const fs::path path = error_path(folder_, number); is_file(path))
      throw Error(text_of("replica ", number), read_file(path));
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    throw Error(text_of("replica ", number),
                signal != 0 ? text_of("was ended by signal ", signal, " (", ::strsignal(signal), ")")
                            : text_of("ended with exit code ", WEXITSTATUS(status)));
  }

  fs::path folder_;
  std::vector<Replica> replicas_;
};

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
    throw Error(kVariable, text_of("is ", shown(text)), "unset it; hone serve sets it for its replicas");
  }
  place.folder = std::string(count.ptr + 1, end);
  return place;
}

ServeOptions options_of_replica(ServeOptions options) {
  const ServeOptions front;
  options.data_parallel_size = front.data_parallel_size;
  options.host = front.host;
  options.port = 0;
  options.ssl_certfile = front.ssl_certfile;
  options.ssl_keyfile = front.ssl_keyfile;
  options.allowed_origins = front.allowed_origins;
  options.access_log = false;
  return options;
}

int run_replica(const ReplicaPlace& place, const std::function<int()>& work) {
  if (place.number > 0) set_silent(true);  // until it takes requests: the first replica says the same
  try {
    return work();
  } catch (const JobFailure&) {
    throw;
  } catch (const Error& error) {
    write_file(error_path(place.folder, place.number), error.what());
    throw JobFailure("", error.what(), {}, true);
  }
}

void report_ready(const ReplicaPlace& place, std::uint16_t port, const std::string& summary) {
  set_silent(false);
  write_json(ready_path(place.folder, place.number), {{"port", port}, {"summary", summary}});
}

int serve_replicas(const ServeOptions& options, const HttpOptions& http) {
  (void)resolve_model(options.model_name_or_path);  // once, before each replica looks for it
  const TemporaryFolder folder(fs::temp_directory_path(), "hone-serve");
  catch_interrupts("\nhone: shutting down; press Ctrl+C again to exit immediately\n");
  Replicas replicas(options, folder.path());
  const std::vector<ReadyReplica> ready = replicas.wait_until_ready();
  if (ready.empty()) throw Interrupted();
  HttpRelay relay(http.error_body);
  ReplicaFront front(ready.size(), [&](std::size_t replica, ServerRequest request, std::shared_ptr<ServerReply> reply,
                                       std::function<void()> on_end) {
    relay.forward(std::move(request), std::move(reply), ready[replica].port, std::move(on_end));
  });
  HttpServer server(http, [&](ServerRequest request, std::shared_ptr<ServerReply> reply) {
    front.handle(std::move(request), std::move(reply));
  });
  log_info(text_of("serving ",
                   options.served_model_name.empty() ? options.model_name_or_path : options.served_model_name.front(),
                   http.tls ? " on https://" : " on http://", options.host, ":", server.port(), "/v1, ", ready.size(),
                   " replicas, each ", ready.front().summary));
  std::exception_ptr failure;
  try {
    replicas.wait_for_signal();
  } catch (const Error&) {
    failure = std::current_exception();
  }
  server.drain();
  std::this_thread::sleep_for(kSettle);
  replicas.stop(std::chrono::milliseconds(static_cast<std::int64_t>(options.shutdown_timeout * 1000)) + kEndLimit);
  server.wait_until_idle(std::chrono::seconds(5));
  if (failure) std::rethrow_exception(failure);
  return 0;
}

}  // namespace hone
