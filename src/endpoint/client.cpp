#include "endpoint/client.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/yaml.h"
#include "hub/http.h"
#include "hub/refusal.h"
#include "hub/url.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{250};  // doubles with each retry
constexpr milliseconds kLongestPause{60'000};
constexpr milliseconds kLongestWish{300'000};  // upper limit of a server's Retry-After
constexpr milliseconds kNoticeEvery{5'000};
constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;

std::string message_of(const HttpAnswer& answer) { return error_message(answer.body); }

milliseconds pause_after(const HttpAnswer& answer, std::int64_t tries) {
  if (const auto wish = answer.headers.find("retry-after"); wish != answer.headers.end()) {
    std::int64_t seconds = -1;
    std::from_chars(wish->second.data(), wish->second.data() + wish->second.size(), seconds);
    if (seconds >= 0) return std::min(kLongestWish, milliseconds(std::min<std::int64_t>(seconds, 1000) * 1000));
  }
  return std::min(kLongestPause, kFirstPause * (std::int64_t{1} << std::min<std::int64_t>(tries, 20)));
}

Url checked_url(const std::string& endpoint, std::string_view key) {
  std::optional<Url> url = Url::parse(endpoint);
  if (!url || !url->is_http()) {
    throw Error(key, text_of(shown(endpoint), " is not an http(s) URL"), "for example http://localhost:8000/v1");
  }
  return std::move(*url);
}

}  // namespace

std::string error_message(const std::string& body) {
  std::string message = body;
  try {
    const Json json = parse_json(body, "answer");
    const Json& error = json.is_object() && json.contains("error") ? json["error"] : json;
    if (error.is_string()) message = error.get<std::string>();
    if (error.is_object() && error.contains("message") && error["message"].is_string()) {
      message = error["message"].get<std::string>();
    }
  } catch (const Error&) {
    message = body;  // not JSON
  }
  if (message.size() > 300) message = message.substr(0, 300) + "...";
  return message;
}

std::string api_url(const std::string& endpoint, std::string_view key) {
  Url url = checked_url(endpoint, key);
  const std::string path = url.path();
  url.set_path(path.empty() ? "/v1" : path);
  return url.text();
}

std::string server_url(const std::string& endpoint, std::string_view key) {
  constexpr std::string_view kVersion = "/v1";
  Url url = checked_url(endpoint, key);
  std::string path = url.path();
  if (path.ends_with(kVersion)) path.resize(path.size() - kVersion.size());
  url.set_path(path);
  return url.text();
}

bool FailureNotices::say(const Failure& failure, Clock::time_point now, milliseconds until_next) {
  const std::scoped_lock lock(mutex_);
  if (said_ != Clock::time_point{} && now < said_ + kNoticeEvery) return false;
  said_ = now;
  std::array<char, 32> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%.3g s", static_cast<double>(until_next.count()) / 1000);
  log_warning(text_of(failure.url, ": ", failure.problem, "; try ", failure.tries,
                      failure.most > 0 ? text_of(" of ", failure.most) : std::string(), ", the next in ",
                      seconds.data()));
  return true;
}

std::string EndpointClient::post(const std::string& url, const std::string& body, std::string_view wanted,
                                 const std::function<void(const std::string&)>& read) const {
  const HttpPost request{.url = url,
                         .token = options_.token,
                         .body = body,
                         .timeout = options_.timeout,
                         .most = kMostBytes,
                         .cancelled = options_.cancelled};
  return ask(url, [&] { return http_post(request); }, wanted, read);
}

std::string EndpointClient::get(const std::string& url, std::string_view wanted,
                                const std::function<void(const std::string&)>& read) const {
  const HttpRequest request{.url = url, .token = options_.token, .most = kMostBytes};
  return ask(url, [&] { return http_get(request); }, wanted, read);
}

std::string EndpointClient::ask(const std::string& url, const std::function<HttpAnswer()>& send,
                                std::string_view wanted, const std::function<void(const std::string&)>& read) const {
  const auto patient_until = Clock::now() + options_.patience;
  std::string problem;
  bool said = false;
  std::int64_t malformed = 0;
  for (std::int64_t tries = 1;; ++tries) {
    const HttpAnswer answer = send();
    throw_if_over();
    if (answer.status == 200 && answer.failure.empty()) {
      try {
        read(answer.body);
        if (said) log_info(text_of(url, ": answers again, after ", tries, " tries"));
        return {};
      } catch (const WrongAnswer& error) {
        throw Error(url, error.what());
      } catch (const Json::exception&) {
        problem = text_of("the answer is not a valid ", wanted, ": ", message_of(answer));
      } catch (const Error& error) {
        problem = text_of("the answer is not a valid ", wanted, ": ", error.what());
      }
      ++malformed;
    } else if (is_passing(answer)) {
      problem = answer.failure.empty() ? text_of("answers ", answer.status, ": ", message_of(answer))
                                       : text_of("gives no answer: ", answer.failure);
    } else {
      const std::string what = text_of("answers ", answer.status, ": ", message_of(answer));
      if (answer.status == 400 || answer.status == 413 || answer.status == 422) return what;
      const bool is_access = answer.status == 401 || answer.status == 403;
      throw Error(url, what, is_access ? options_.token_help : answer.status == 404 ? options_.not_found_help : "");
    }
    if (tries > options_.retries && Clock::now() >= patient_until) {
      const std::string help = text_of("tried ", tries, " times; ", options_.retries_exhausted_help);
      if (malformed == tries) throw MalformedAnswers(url, problem, help);
      throw Error(url, problem, help);
    }
    said |= sleep(pause_after(answer, tries - 1), url, problem, tries);
  }
}

// Waits before the next try; returns true if it logged a notice.
bool EndpointClient::sleep(milliseconds pause, const std::string& url, const std::string& problem,
                           std::int64_t tries) const {
  const FailureNotices::Failure failure{.url = url,
                                        .problem = problem,
                                        .tries = tries,
                                        .most = options_.patience > milliseconds(0) ? 0 : options_.retries + 1};
  bool said = false;
  const auto end = Clock::now() + pause;
  for (auto now = Clock::now(); now < end; now = Clock::now()) {
    throw_if_over();
    said |= notices_.say(failure, now, std::chrono::ceil<milliseconds>(end - now));
    std::this_thread::sleep_for(std::min(pause, milliseconds(20)));
  }
  return said;
}

void EndpointClient::throw_if_over() const {
  throw_if_interrupted();
  if (options_.cancelled != nullptr && *options_.cancelled) throw Cancelled();
}

void run_requests(std::size_t threads, std::atomic<bool>& cancelled, const std::function<bool()>& step) {
  const auto ask = [&](std::size_t) {
    try {
      while (!cancelled && step()) continue;
    } catch (const Cancelled&) {
      return;
    } catch (...) {
      cancelled = true;
      throw;
    }
  };
  try {
    run_many(threads, static_cast<int>(threads), ask);
  } catch (...) {
    cancelled = false;
    throw;
  }
  cancelled = false;
}

}  // namespace hone
