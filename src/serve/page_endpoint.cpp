// Sends the files of the page, which are embedded in the program, and the contents of runs.
#include "serve/page.h"

#include <algorithm>
#include <array>
#include <utility>

#include "serve/endpoints.h"
#include "serve/request_error.h"
#include "serve/runs/run_answers.h"

namespace hone {
namespace {

// Output of a model is untrusted. The policy allows no inline script or style and no request that leaves the origin,
// and no text can become markup or script (Trusted Types).
constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

std::string page_content_type(std::string_view name) {
  constexpr auto kTypes = std::to_array<std::pair<std::string_view, std::string_view>>(
      {{".html", "text/html"}, {".css", "text/css"}, {".js", "text/javascript"}, {".svg", "image/svg+xml"}});
  for (const auto& [ending, type] : kTypes)
    if (name.ends_with(ending)) return std::string(type) + "; charset=utf-8";
  return "application/octet-stream";
}

}  // namespace

ServerResponse page_response(std::string_view name) {
  const auto files = page_files();
  const auto found = std::ranges::find(files, name, &PageFile::name);
  if (found == files.end()) throw RequestError({}, text_of("the page has no file ", name), {}, 404);
  return {.status = 200,
          .body = std::string(found->text),
          .content_type = page_content_type(name),
          .headers = {{"Content-Security-Policy", kPagePolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"},
                      {"Cache-Control", "no-cache"}}};
}

void answer_page(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) {
  constexpr std::string_view kBegin = "/page/";
  std::string_view name = request.path();
  if (name == "/") name = "index.html";
  if (name == "/watch") name = "watch.html";
  if (name.starts_with(kBegin)) name.remove_prefix(kBegin.size());
  if (!service.options().page || (request.path() == "/watch" && service.options().runs.empty()))
    throw RequestError({}, text_of("there is no ", request.method, " ", request.path()), {}, 404);
  reply->send(page_response(name));
}

void answer_run_files(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) {
  if (service.options().runs.empty())
    throw RequestError({}, text_of("there is no ", request.method, " ", request.path()),
                       "start the server with --runs FOLDER", 404);
  reply->send(answer_runs(service.options().runs, request));
}

}  // namespace hone
