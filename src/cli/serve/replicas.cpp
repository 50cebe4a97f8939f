#include "cli/serve/replicas.h"

#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/model_directory.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/job_log.h"
#include "core/json_value.h"
#include "core/log.h"
#include "http/relay.h"
#include "serve/replicas.h"
#include "system/job_place.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr auto kLook = std::chrono::milliseconds(50);     // between looks for a signal or the end of a replica
constexpr auto kSettle = std::chrono::milliseconds(200);  // until requests that the front has read are at a replica
constexpr auto kEndLimit = std::chrono::seconds(10);      // for a replica to end after its requests have

fs::path ready_path(const fs::path& folder, std::size_t number) { return folder / text_of(number, ".json"); }

struct ReadyReplica {
  std::uint16_t port = 0;
  std::string summary;
};

// Waits a moment. Throws Error if a replica has ended, by itself or by a signal.
void look_after(ReplicaProcesses& replicas, std::size_t count) {
  replicas.wait(kLook);
  if (replicas.running() < count && !interrupted()) throw Error("a replica", "has ended");
}

// Waits until all replicas take requests. Returns nothing if a signal has arrived.
std::vector<ReadyReplica> wait_until_ready(ReplicaProcesses& replicas, std::size_t count, const fs::path& folder) {
  std::vector<ReadyReplica> ready;
  while (ready.size() < count) {
    if (const fs::path path = ready_path(folder, ready.size()); is_file(path)) {
      const Json said = read_json(path);
      ready.push_back({said.at("port").get<std::uint16_t>(), said.at("summary").get<std::string>()});
      continue;
    }
    if (interrupted()) return {};
    look_after(replicas, count);
  }
  return ready;
}

}  // namespace

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

void report_ready(const ReplicaPlace& place, std::uint16_t port, const std::string& summary) {
  set_silent(false);
  write_json(ready_path(place.folder, static_cast<std::size_t>(place.number)), {{"port", port}, {"summary", summary}});
}

int serve_replicas(const ServeOptions& options, HttpOptions http) {
  if (job_place().is_job()) {
    throw Error("data_parallel_size", text_of("is ", options.data_parallel_size, " in one of several processes"),
                "start hone serve once; it starts the replicas");
  }
  http.address = std::make_shared<BoundAddress>(http.host, http.port);
  (void)resolve_model(options.model_name_or_path);  // once, before each replica looks for it
  const TemporaryFolder folder(fs::temp_directory_path(), "hone-serve");
  catch_interrupts("\nhone: shutting down; press Ctrl+C again to exit immediately\n");
  const auto count = static_cast<std::size_t>(options.data_parallel_size);
  ReplicaProcesses replicas(
      {.count = static_cast<int>(count), .gpus_each = options.tensor_parallel_size, .device = options.device},
      folder.path());
  const std::vector<ReadyReplica> ready = wait_until_ready(replicas, count, folder.path());
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
    while (!interrupted()) look_after(replicas, count);
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
