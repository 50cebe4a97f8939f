#include "hub/refusal.h"

#include <string>

#include "core/error.h"
#include "core/yaml.h"

namespace hone {

bool is_passing(const HttpAnswer& answer) {
  return !answer.failure.empty() || answer.status == 429 || answer.status == 408 || answer.status >= 500;
}

void fail_refused(const HubRepo& repo, std::string_view path, const HttpAnswer& answer) {
  const std::string kind = repo.kind == RepoKind::kModel ? "model" : "dataset";
  const std::string what = path.empty() ? shown(repo.name) : text_of(shown(repo.name), " ", path);
  const auto header = answer.headers.find("x-error-code");
  const std::string code = header == answer.headers.end() ? "" : header->second;
  if (answer.status == 0 || (!answer.failure.empty() && answer.status < 400)) {
    throw Error(what,
                text_of(path.empty() ? "is not a local path, and there is no answer from " : "no answer from ",
                        hub_endpoint(), ": ", answer.failure),
                "check the network; HF_ENDPOINT selects another hub, HF_HUB_OFFLINE=1 uses only the cache");
  }
  if (code == "GatedRepo" || answer.status == 403) {
    throw Error(what, text_of("the hub refuses access (", answer.status, ")"),
                "accept the terms on its page, and set HF_TOKEN to a token with read access");
  }
  if (code == "RevisionNotFound") throw Error(what, text_of("has no revision ", shown(repo.revision)));
  if (answer.status == 401) {
    throw Error(what, text_of("there is no such ", kind, " on the hub, or it is private (401)"),
                "check the name; set HF_TOKEN for a private one");
  }
  if (answer.status == 404) {
    throw Error(what,
                path.empty() ? text_of("there is neither such a file or folder nor such a ", kind, " on the hub (404)")
                             : text_of("the hub has no such file (404)"),
                "check the name");
  }
  throw Error(what, text_of("the hub answers ", answer.status), is_passing(answer) ? "try again later" : "");
}

}  // namespace hone
