#include "serve/service.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/log.h"
#include "serve/endpoints.h"
#include "serve/messages_form.h"
#include "serve/request_error.h"
#include "serve/routes.h"

namespace hone {
namespace {

// Compares keys in a time that does not depend on where they differ.
bool equal_keys(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return difference == 0;
}

void refuse(const ServerRequest& request, ServerReply& reply, std::string_view message, std::string_view param,
            int status) {
  const bool anthropic = request.path() == "/v1/messages";
  ServerResponse response{
      .status = status, .body = anthropic ? messages_error_body(message, status) : error_body(message, param, status)};
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (status == 429 || status == 503) response.headers.emplace_back("Retry-After", "1");
  reply.send(std::move(response));
}

}  // namespace

void Service::handle(const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) const {
  try {
    route(request, reply);
  } catch (const RequestError& error) {
    refuse(request, *reply, error.what(), error.param(), error.status());
  } catch (const Error& error) {
    refuse(request, *reply, error.what(), {}, 400);
  } catch (const std::exception& error) {
    log_warning(text_of("a request to ", request.path(), " failed: ", error.what()));
    refuse(request, *reply, "the server has failed to answer this request", {}, 500);
  }
}

void Service::route(const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) const {
  const Route* const found = route_of(request);
  if (found == nullptr) throw RequestError({}, text_of("there is no ", request.method, " ", request.path()), {}, 404);
  if (found->access != Access::kAnyone) check_key(request);
  if (found->access == Access::kControl) check_control(request);
  if (request.method != found->method) {
    const std::string message = text_of(request.path(), " takes ", found->method, ", not ", request.method);
    return reply->send(
        {.status = 405, .body = error_body(message, {}, 405), .headers = {{"Allow", std::string(found->method)}}});
  }
  const std::string_view type = request.header("content-type");
  const bool needs_body = found->access != Access::kControl || !request.body.empty();
  if (request.method == "POST" && needs_body &&
      !equal_in_any_case(type.substr(0, std::min(type.find(';'), type.size())), "application/json"))
    throw RequestError({}, text_of("the body has the type \"", type, "\""), "send Content-Type: application/json", 415);
  found->endpoint(*this, request, reply);
}

void Service::check_key(const ServerRequest& request) const {
  if (options_.api_key.empty()) return;
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view given = request.header("x-api-key");
  if (const std::string_view header = request.header("authorization"); header.size() >= kBearer.size())
    if (equal_in_any_case(header.substr(0, kBearer.size()), kBearer)) given = header.substr(kBearer.size());
  if (!equal_keys(given, options_.api_key))
    throw RequestError({}, "the API key is missing or wrong", "send Authorization: Bearer KEY", 401);
}

void Service::check_control(const ServerRequest& request) const {
  if (!options_.allow_weight_updates)
    throw RequestError({}, text_of(request.path(), " is not allowed on this server"),
                       "start it with --allow_weight_updates", 403);
  // Pages of other origins reach servers on this host without a key, and a call without a body needs no consent.
  if (options_.api_key.empty() && !request.header("origin").empty())
    throw RequestError({}, text_of(request.path(), " is not allowed to web pages"), "set an --api_key", 403);
}

void Service::submit(GenerationJob job) const { check(loop_.submit(std::move(job))); }
void Service::submit(EmbeddingJob job) const { check(loop_.submit(std::move(job))); }
void Service::submit(EngineAction action) const { check(loop_.submit(std::move(action))); }

void Service::check(Admission admission) {
  switch (admission) {
    case Admission::kAccepted:
      return;
    case Admission::kFull:
      throw RequestError({}, "too many requests are waiting", "try again later", 429);
    case Admission::kClosing:
      throw RequestError({}, "the server shuts down", {}, 503);
  }
}

}  // namespace hone
