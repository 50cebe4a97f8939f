// hone watch: shows runs in a browser while they train.
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "cli/registry.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "http/server.h"
#include "serve/request_error.h"
#include "serve/watch_service.h"

namespace hone {
namespace {

struct WatchKeys {
  std::string run_dir;
  std::string host = "127.0.0.1";
  std::int64_t port = 8080;
  std::string ssl_certfile;
  std::string ssl_keyfile;

  template <class Visitor>
  void fields(Visitor& v) {
    v("run_dir", run_dir, "Output folder of a run, or a folder that has several; also the first argument");
    v("host", host, "Name or address of the interface to listen on; 0.0.0.0: all");
    v("port", port, "TCP port; 0: any free one", within(0, 65535));
    v("ssl_certfile", ssl_certfile,
      "File with the server's certificate, in PEM form and followed by those of its authorities; the page then comes "
      "over "
      "TLS (HTTPS)");
    v("ssl_keyfile", ssl_keyfile, "File with the certificate's private key; unset: ssl_certfile has it");
  }
};

std::string watched_folder(const WatchKeys& keys, const OptionInput& input) {
  if (input.positionals.size() > 1)
    throw Error("hone watch", text_of("takes one folder, saw ", input.positionals.size()),
                "name a folder that holds the runs");
  const std::string folder = input.positionals.empty() ? keys.run_dir : input.positionals.front();
  if (folder.empty()) throw Error("hone watch", "no folder given", "hone watch runs/quickstart");
  if (!is_folder(folder)) throw Error(folder, "is not a folder", "give the output_dir of a run");
  return folder;
}

bool is_loopback(std::string_view host) { return host == "127.0.0.1" || host == "localhost" || host == "::1"; }

int run_watch(const WatchKeys& keys, const OptionInput& input) {
  const WatchService service(
      {.version = HONE_VERSION, .runs = watched_folder(keys, input), .local_hosts_only = is_loopback(keys.host)});
  HttpOptions http;
  http.host = keys.host;
  http.port = static_cast<std::uint16_t>(keys.port);
  http.tls = read_tls_identity(keys.ssl_certfile, keys.ssl_keyfile);
  http.max_connections = 256;
  http.max_body_bytes = 1 << 10;
  http.error_body = [](int status, std::string_view message) { return error_body(message, {}, status); };
  catch_interrupts();
  HttpServer server(http, [&](const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) {
    service.handle(request, reply);
  });
  log_info(text_of("watching ", watched_folder(keys, input), http.tls ? " on https://" : " on http://", keys.host, ":",
                   server.port(), "; Ctrl+C ends"));
  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server.drain();
  return 0;
}

}  // namespace

void register_watch(CommandRegistry& registry) {
  registry.add(make_command<WatchKeys>(
      {.name = "watch",
       .summary = "Show runs in a browser while they train",
       .positionals = "[RUN_DIR]",
       .details = "A page with the curves of metrics.jsonl, completions with their rewards, and evaluations side by "
                  "side, of a run\nor of all runs in a folder. It reads files only, and needs neither the model nor "
                  "the process that trains."},
      run_watch));
}

}  // namespace hone
