#include "serve/watch_service.h"

#include <algorithm>
#include <string_view>

#include "core/json_value.h"
#include "core/log.h"
#include "serve/answer_head.h"
#include "serve/page.h"
#include "serve/request_error.h"
#include "serve/runs/run_answers.h"

namespace hone {
namespace {

// Returns true if a Host header names an IP address or localhost. A name of DNS never consists of digits and dots only,
// and has no colon.
bool is_local_host(std::string_view host) {
  if (host.starts_with('[')) return true;  // IPv6
  host = host.substr(0, std::min(host.rfind(':'), host.size()));
  return equal_in_any_case(host, "localhost") ||
         (!host.empty() && host.find_first_not_of("0123456789.") == std::string_view::npos);
}

}  // namespace

void WatchService::handle(const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) const {
  const auto refuse = [&](std::string_view message, std::string_view param, int status) {
    reply->send({.status = status, .body = error_body(message, param, status)});
  };
  try {
    reply->send(answer(request));
  } catch (const RequestError& error) {
    refuse(error.what(), error.param(), error.status());
  } catch (const std::exception& error) {
    log_warning(text_of("a request to ", request.path(), " failed: ", error.what()));
    refuse("the server has failed to answer this request", {}, 500);
  }
}

ServerResponse WatchService::answer(const ServerRequest& request) const {
  constexpr std::string_view kFiles = "/page/";
  if (options_.local_hosts_only && !is_local_host(request.header("host")))
    throw RequestError({}, "this server answers requests to an IP address or localhost only",
                       "open http://127.0.0.1:PORT, or give hone watch the name by --host", 403);
  const std::string_view path = request.path();
  if (request.method != "GET" && request.method != "HEAD")
    throw RequestError({}, text_of("there is no ", request.method, " ", path), {}, 405);
  if (path == "/") return page_response("watch.html");
  if (path.starts_with(kFiles)) return page_response(path.substr(kFiles.size()));
  if (path == "/health") return {.status = 200, .body = {}};
  if (path == "/version") return {.status = 200, .body = json_text({{"version", options_.version}, {"runs", true}})};
  if (path == "/runs" || path.starts_with("/runs/")) return answer_runs(options_.runs, request);
  throw RequestError({}, text_of("there is no GET ", path), {}, 404);
}

}  // namespace hone
