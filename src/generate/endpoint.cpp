#include "generate/endpoint.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/strings.h"
#include "core/yaml.h"
#include "hub/cache.h"
#include "hub/http.h"
#include "hub/refusal.h"
#include "reward/tags.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{250};  // doubled each time
constexpr milliseconds kLongestPause{60'000};
constexpr milliseconds kLongestWish{300'000};  // of a server's Retry-After
constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMostThreads = 1024;
constexpr int kMostRefusals = 16;  // while nothing was answered
constexpr std::string_view kThinkEnd = "</think>";

// Another thread has failed.
struct Cancelled {};

// Of a completion, or why this prompt gets none.
struct EndpointAnswer {
  GeneratedText completion;
  std::string refusal;
};

std::string text_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The server's words: of OpenAI's error object, else the body's beginning.
std::string message_of(const HttpAnswer& answer) {
  std::string message;
  try {
    const Json json = parse_json(answer.body, "answer");
    const Json& error = json.is_object() && json.contains("error") ? json["error"] : json;
    message = error.is_string()   ? error.get<std::string>()
              : error.is_object() ? text_member(error, "message")
                                  : answer.body;
  } catch (const Error&) {
    message = answer.body;
  }
  if (message.size() > 300) message = message.substr(0, 300) + "...";
  return message;
}

// Templates that open the thoughts themselves leave the opening out of the answer.
std::string with_thoughts(const std::string& reasoning, const std::string& content, bool ended) {
  if (!trim(reasoning).empty()) {
    std::string text = text_of(kThinkOpening, trim(reasoning));
    if (ended || !trim(content).empty()) text += text_of("\n", kThinkEnd, "\n\n", trim(content));
    return text;
  }
  const std::size_t end = content.find(kThinkEnd);
  const bool lacks_opening = end != std::string::npos && content.rfind("<think>", end) == std::string::npos;
  return lacks_opening ? text_of(kThinkOpening, content) : content;
}

// Throws Error or Json::exception where the body is no chat completion.
GeneratedText read_completion(const std::string& body) {
  const Json json = parse_json(body, "the answer");
  const Json& choice = json.at("choices").at(0);
  const Json& message = choice.at("message");
  std::string reasoning = text_member(message, "reasoning_content");
  if (reasoning.empty()) reasoning = text_member(message, "reasoning");
  GeneratedText completion{.text = {}, .finish_reason = text_member(choice, "finish_reason"), .tokens = 0};
  completion.text = with_thoughts(reasoning, text_member(message, "content"), completion.finish_reason == "stop");
  const Json usage = json.value("usage", Json::object());
  if (usage.is_object() && usage.contains("completion_tokens") && usage["completion_tokens"].is_number_integer()) {
    completion.tokens = usage["completion_tokens"].get<std::int64_t>();
  } else {
    log_once("the endpoint counts no tokens: a completion's length is taken to be 0");
  }
  return completion;
}

class Endpoint {
 public:
  Endpoint(const GenerateOptions& options, const std::atomic<bool>& cancelled)
      : options_(options),
        url_(completions_url(options.endpoint)),
        key_(trim(environment(options.endpoint_key_variable.c_str()))),
        cancelled_(cancelled) {}

  // Throws Error where there will be no answer to any prompt, Interrupted, and Cancelled.
  [[nodiscard]] EndpointAnswer ask(const GeneratePrompt& prompt, std::uint64_t seed) const {
    HttpPost request{.url = url_,
                     .token = key_,
                     .body = body_of(prompt, seed),
                     .timeout = milliseconds(static_cast<std::int64_t>(options_.endpoint_timeout * 1000)),
                     .most = kMostBytes,
                     .cancelled = &cancelled_};
    std::string problem;
    for (std::int64_t tries = 0; tries <= options_.endpoint_retries; ++tries) {
      const HttpAnswer answer = http_post(request);
      throw_if_over();
      if (answer.status == 200 && answer.failure.empty()) {
        try {
          return {.completion = read_completion(answer.body), .refusal = {}};
        } catch (const Json::exception&) {
          problem = "answers with what is no chat completion: " + message_of(answer);
        } catch (const Error& error) {
          problem = text_of("answers with what is no chat completion: ", error.what());
        }
      } else if (!is_passing(answer)) {
        return refused(answer);
      } else {
        problem = answer.failure.empty() ? text_of("answers ", answer.status, ": ", message_of(answer))
                                         : text_of("gives no answer: ", answer.failure);
      }
      if (tries < options_.endpoint_retries) sleep(pause_after(answer, tries));
    }
    throw Error(url_, problem,
                text_of("asked ", options_.endpoint_retries + 1, " times; what is done is kept, run again to go on"));
  }

 private:
  [[nodiscard]] std::string body_of(const GeneratePrompt& prompt, std::uint64_t seed) const {
    Json body{{"model", options_.model_name_or_path},  {"messages", parse_json(prompt.messages, "messages")},
              {"temperature", options_.temperature},   {"top_p", options_.top_p},
              {"max_tokens", options_.max_new_tokens}, {"seed", seed}};
    // Not OpenAI's: vLLM, SGLang and llama.cpp know them.
    if (options_.top_k > 0) body["top_k"] = options_.top_k;
    if (options_.min_p > 0) body["min_p"] = options_.min_p;
    if (options_.repetition_penalty != 1) body["repetition_penalty"] = options_.repetition_penalty;
    return body.dump();
  }

  // Of this prompt; throws Error where it is no matter of the prompt.
  [[nodiscard]] EndpointAnswer refused(const HttpAnswer& answer) const {
    const std::string what = text_of("answers ", answer.status, ": ", message_of(answer));
    switch (answer.status) {
      case 400:
      case 413:
      case 422:
        return {.completion = {}, .refusal = what};
      case 401:
      case 403:
        throw Error(url_, what, text_of(key_.empty() ? "set " : "check the key in ", options_.endpoint_key_variable));
      case 404:
        throw Error(url_, what, text_of("is ", shown(options_.model_name_or_path), " served there?"));
      default:
        throw Error(url_, what);
    }
  }

  static milliseconds pause_after(const HttpAnswer& answer, std::int64_t tries) {
    if (const auto wish = answer.headers.find("retry-after"); wish != answer.headers.end()) {
      std::int64_t seconds = -1;
      std::from_chars(wish->second.data(), wish->second.data() + wish->second.size(), seconds);
      if (seconds >= 0) return std::min(kLongestWish, milliseconds(std::min<std::int64_t>(seconds, 1000) * 1000));
    }
    return std::min(kLongestPause, kFirstPause * (std::int64_t{1} << std::min<std::int64_t>(tries, 20)));
  }

  void sleep(milliseconds pause) const {
    for (const auto end = Clock::now() + pause; Clock::now() < end;) {
      throw_if_over();
      std::this_thread::sleep_for(std::min(pause, milliseconds(20)));
    }
  }

  void throw_if_over() const {
    throw_if_interrupted();
    if (cancelled_) throw Cancelled();
  }

  const GenerateOptions& options_;
  std::string url_;
  std::string key_;
  const std::atomic<bool>& cancelled_;
};

// A prompt some of whose completions have been asked for.
struct AskedPrompt {
  std::vector<GeneratedText> completions;
  std::int64_t missing = 0;
};

// What the threads share; each takes the next completion that nobody has asked for.
class EndpointRun {
 public:
  EndpointRun(const GenerateOptions& options, std::span<const GeneratePrompt> prompts, Journal& journal)
      : options_(options),
        prompts_(prompts),
        journal_(journal),
        endpoint_(options, cancelled_),
        done_before_(std::ranges::count_if(prompts, [&](const auto& prompt) { return journal.contains(prompt.key); })),
        progress_("generate", std::ssize(prompts), "prompt", done_before_) {}

  void run() {
    if (done_before_ > 0) {
      log_info(
          text_of(format_count(done_before_), " of ", format_count(std::ssize(prompts_)), " prompts were done before"));
    }
    const std::int64_t missing = (std::ssize(prompts_) - done_before_) * options_.num_generations;
    {
      std::vector<std::jthread> threads;
      for (std::int64_t i = 0; i < std::min({options_.max_num_seqs, missing, kMostThreads}); ++i) {
        threads.emplace_back([this] { work(); });
      }
    }
    if (failure_) std::rethrow_exception(failure_);
    if (refused_ == 0) return;
    log_warning(text_of(format_count(refused_), " of ", format_count(std::ssize(prompts_)),
                        " prompts were refused and are left out; the first: ", first_refusal_));
  }

 private:
  struct Job {
    const GeneratePrompt* prompt = nullptr;
    std::int64_t number = 0;  // of the completion
  };

  void work() {
    try {
      while (const std::optional<Job> job = next()) {
        const RandomStream seeds(static_cast<std::uint64_t>(options_.seed), "generate " + job->prompt->key);
        // Servers read it as a signed number, some of 32 bits.
        const std::uint64_t seed = seeds.bits(static_cast<std::uint64_t>(job->number)) >> 1;
        take(*job, endpoint_.ask(*job->prompt, seed));
      }
    } catch (const Cancelled&) {
      return;
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      cancelled_ = true;
    }
  }

  std::optional<Job> next() {
    const std::scoped_lock lock(mutex_);
    if (number_ == options_.num_generations) {
      number_ = 0;
      ++prompt_;
    }
    if (number_ == 0) {
      while (prompt_ < prompts_.size() && journal_.contains(prompts_[prompt_].key)) ++prompt_;
      if (prompt_ == prompts_.size()) return std::nullopt;
      const auto count = static_cast<std::size_t>(options_.num_generations);
      asked_.emplace(&prompts_[prompt_], AskedPrompt{std::vector<GeneratedText>(count), options_.num_generations});
    }
    return Job{&prompts_[prompt_], number_++};
  }

  void take(const Job& job, EndpointAnswer answer) {
    const std::scoped_lock lock(mutex_);
    const auto asked = asked_.find(job.prompt);
    if (asked == asked_.end()) return;  // another completion of the prompt was refused
    if (!answer.refusal.empty()) return refuse(job, answer.refusal);
    tokens_ += answer.completion.tokens;
    asked->second.completions[static_cast<std::size_t>(job.number)] = std::move(answer.completion);
    if (--asked->second.missing > 0) return;
    journal_.append(journal_row(*job.prompt, asked->second.completions));
    asked_.erase(asked);
    ++answered_;
    const std::chrono::duration<double> passed = Clock::now() - start_;
    const auto rate = static_cast<std::int64_t>(static_cast<double>(tokens_) / std::max(passed.count(), 1e-3));
    progress_.set_postfix(text_of(format_count(rate), " tokens/s"));
    progress_.advance();
  }

  void refuse(const Job& job, const std::string& why) {
    asked_.erase(job.prompt);
    const bool is_current = prompt_ < prompts_.size() && job.prompt == &prompts_[prompt_];
    if (is_current) number_ = options_.num_generations;  // the others need not be asked for
    if (refused_++ == 0) first_refusal_ = text_of("prompt ", job.prompt->key, ": the endpoint ", why);
    const bool all =
        answered_ == 0 && done_before_ == 0 && refused_ == std::min<std::int64_t>(kMostRefusals, std::ssize(prompts_));
    if (all) throw Error(options_.endpoint, text_of("refused the first ", refused_, " prompts; ", first_refusal_));
    progress_.advance();
  }

  const GenerateOptions& options_;
  std::span<const GeneratePrompt> prompts_;
  Journal& journal_;
  std::atomic<bool> cancelled_ = false;
  Endpoint endpoint_;
  std::int64_t done_before_;

  std::mutex mutex_;  // of all that follows, and of the journal
  Progress progress_;
  Clock::time_point start_ = Clock::now();
  std::size_t prompt_ = 0;  // the next completion's
  std::int64_t number_ = 0;
  std::unordered_map<const GeneratePrompt*, AskedPrompt> asked_;
  std::int64_t tokens_ = 0;
  std::int64_t answered_ = 0;  // prompts
  std::int64_t refused_ = 0;
  std::string first_refusal_;
  std::exception_ptr failure_;
};

}  // namespace

std::string completions_url(const std::string& endpoint) {
  const std::size_t scheme = endpoint.find("://");
  const bool is_http = endpoint.starts_with("http://") || endpoint.starts_with("https://");
  std::string url = endpoint;
  while (url.ends_with('/')) url.pop_back();
  if (!is_http || url.size() <= scheme + 3) {
    throw Error("endpoint", text_of(shown(endpoint), " is no URL of a server"),
                "http://localhost:8000/v1, for example");
  }
  if (url.find('/', scheme + 3) == std::string::npos) url += "/v1";
  return url + "/chat/completions";
}

void generate_at_endpoint(const GenerateOptions& options, std::span<const GeneratePrompt> prompts, Journal& journal) {
  EndpointRun(options, prompts, journal).run();
}

}  // namespace hone
