#include "hub/hub_api.h"

#include <algorithm>
#include <cctype>

#include "core/json_value.h"
#include "core/log.h"
#include "core/yaml.h"
#include "hub/transfer.h"
#include "hub/url.h"

namespace hone {
namespace {

constexpr std::int64_t kLongestAnswer = std::int64_t{64} << 20;
constexpr std::size_t kLongestMessage = 300;

// Returns the hub's error message: that of a header, or of the JSON object in the body.
std::string hub_error_message(const HttpAnswer& answer) {
  if (const auto header = answer.headers.find("x-error-message"); header != answer.headers.end()) {
    return header->second;
  }
  try {
    const Json json = parse_json(answer.body, "answer");
    for (const char* key : {"error", "message"}) {
      if (json.is_object() && json.contains(key) && json[key].is_string()) return json[key].get<std::string>();
    }
  } catch (const Error&) {
    return "";  // a page of some proxy; the status is enough
  }
  return "";
}

}  // namespace

std::string api_path(const HubRepo& repo) {
  return (repo.kind == RepoKind::kModel ? "models/" : "datasets/") + repo.name;
}

std::string escaped_revision(std::string_view revision) {
  std::string text = url_escaped(revision);
  for (std::size_t at = 0; (at = text.find('/', at)) != std::string::npos;) text.replace(at, 1, "%2F");
  return text;
}

bool is_good(const HttpAnswer& answer) { return answer.failure.empty() && answer.status >= 200 && answer.status < 300; }

// An error status that arrived before the whole body was sent (413) counts as an answer.
bool is_retryable(const HttpAnswer& answer) {
  if (answer.status >= 400) return answer.status == 408 || answer.status == 429 || answer.status >= 500;
  return !answer.failure.empty();
}

std::string HubApi::without_token(std::string text) const {
  if (token_.empty()) return text;
  for (std::size_t at = 0; (at = text.find(token_, at)) != std::string::npos;) text.replace(at, token_.size(), "...");
  return text;
}

HttpAnswer HubApi::call(const Call& call) const {
  const bool is_endpoint = origin_of(call.url) == origin_of(hub_endpoint());
  const std::string token = is_endpoint && !call.is_public ? token_ : "";
  for (int tries = 1;; ++tries) {
    const HttpAnswer answer = call.body.empty()
                                  ? http_get({.url = call.url, .token = token, .most = kLongestAnswer, .take = {}})
                                  : http_post({.url = call.url,
                                               .token = token,
                                               .body = call.body,
                                               .content_type = call.content_type,
                                               .accept = call.accept,
                                               .most = kLongestAnswer});
    if (is_good(answer)) return answer;
    const bool passing = is_retryable(answer) || (call.is_passing != nullptr && call.is_passing(answer));
    if (!passing || tries >= patience_.tries) fail(call, answer, tries);
    pause_before_retry(tries - 1, patience_.first_pause);
  }
}

Json HubApi::json(const Call& call) const {
  const HttpAnswer answer = this->call(call);
  Json json = parse_json(answer.body, text_of("the hub's answer about ", call.where));
  if (!json.is_object()) throw Error(call.where, text_of("the hub's answer to ", call.action, " is not a JSON object"));
  return json;
}

void HubApi::fail(const Call& call, const HttpAnswer& answer, int tries) const {
  const auto refuse = [&](const std::string& what, const std::string& fix) {
    throw HubRefusal(answer.status, call.where, without_token(what), fix);
  };
  const std::string origin = origin_of(call.url);
  const std::string asked = tries > 1 ? text_of(", tried ", tries, " times") : "";
  if (answer.status < 300) {
    refuse(text_of("no answer from ", origin, " to ", call.action, asked, ": ", answer.failure),
           "check the network; HF_ENDPOINT selects another hub");
  }
  std::string words = hub_error_message(answer);
  if (words.size() > kLongestMessage) words = words.substr(0, kLongestMessage) + "...";
  words = text_of("the hub refuses to ", call.action, " (", answer.status, ")", words.empty() ? "" : ": " + words);
  switch (answer.status) {
    case 301:
    case 302:
    case 307:
    case 308: {
      const auto location = answer.headers.find("location");
      refuse(text_of("the hub redirects a request to ", call.action, " to ",
                     location == answer.headers.end() ? "another place" : shown(location->second)),
             "if the repository was renamed, use its new name");
      break;
    }
    case 401:
      refuse(words, "put a valid token into HF_TOKEN, hub_token or the file of `huggingface-cli login`");
      break;
    case 403:
      refuse(words, "use a token with write access to it");
      break;
    case 404:
      refuse(words, "the repository does not exist, or the token has no access to it");
      break;
    case 413:
      refuse(words, "it is larger than the hub accepts");
      break;
    default:
      if (is_retryable(answer))
        refuse(text_of("the hub answers ", answer.status, " to ", call.action, asked), "try again later");
      refuse(words, "");
  }
  throw Defect("a refusal was not thrown");
}

}  // namespace hone
