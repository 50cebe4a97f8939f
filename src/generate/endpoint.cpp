#include "generate/endpoint.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/strings.h"
#include "core/yaml.h"
#include "endpoint/client.h"
#include "engine/cache_memory.h"
#include "reward/tags.h"
#include "system/process.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMostThreads = 1024;
constexpr int kMostRefusals = 16;  // refused prompts after which the run ends if no prompt has been answered
constexpr std::string_view kThinkEnd = "</think>";

// Answer of the endpoint: a completion, or the reason why it refuses the prompt.
struct EndpointAnswer {
  GeneratedText completion;
  std::string refusal;
};

std::string text_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Returns the content with its thoughts in <think> tags. If the chat template of the server adds <think> to the prompt,
// the content lacks the opening tag, which is then added.
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

// Parses the body of a response. Throws Error or Json::exception if it is not a chat completion.
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
    log_once("the endpoint does not report token counts: completions are recorded with 0 tokens");
  }
  return completion;
}

EndpointOptions endpoint_options(const GenerateOptions& options, const std::atomic<bool>& cancelled) {
  const std::string& variable = options.endpoint_key_variable;
  std::string key(trim(environment_variable(variable.c_str())));
  return {.token = key,
          .token_help = (key.empty() ? "set " : "check the key in ") + variable,
          .not_found_help = text_of("is ", shown(options.model_name_or_path), " served there?"),
          .retries_exhausted_help = "finished completions are kept; run again to continue",
          .timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.endpoint_timeout * 1000)),
          .retries = options.endpoint_retries,
          .patience = {},
          .cancelled = &cancelled};
}

class Endpoint {
 public:
  Endpoint(const GenerateOptions& options, const std::atomic<bool>& cancelled)
      : options_(options), url_(completions_url(options.endpoint)), client_(endpoint_options(options, cancelled)) {}

  // Requests one completion. Throws Error if the server cannot answer any prompt, Interrupted after Ctrl+C, and
  // Cancelled if another thread failed.
  [[nodiscard]] EndpointAnswer ask(const GeneratePrompt& prompt, std::uint64_t seed) const {
    EndpointAnswer answer;
    try {
      answer.refusal = client_.post(url_, body_of(prompt, seed), "chat completion",
                                    [&](const std::string& body) { answer.completion = read_completion(body); });
    } catch (const MalformedAnswers& error) {
      answer.refusal = error.what();  // the server may be unable to encode the text of this completion
    }
    return answer;
  }

 private:
  [[nodiscard]] std::string body_of(const GeneratePrompt& prompt, std::uint64_t seed) const {
    Json body{{"model", options_.model_name_or_path},  {"messages", parse_json(prompt.messages, "messages")},
              {"temperature", options_.temperature},   {"top_p", options_.top_p},
              {"max_tokens", options_.max_new_tokens}, {"seed", seed}};
    // Extensions of the OpenAI API that vLLM, SGLang and llama.cpp support.
    if (options_.top_k > 0) body["top_k"] = options_.top_k;
    if (options_.min_p > 0) body["min_p"] = options_.min_p;
    const Json adjustments = logit_adjustments(options_.params(options_.max_new_tokens, {}));
    for (const auto& [name, value] : adjustments.items()) {
      if (!value.is_null()) body[name] = value;
    }
    return body.dump();
  }

  const GenerateOptions& options_;
  std::string url_;
  EndpointClient client_;
};

// Prompt with requests in flight.
struct AskedPrompt {
  std::vector<GeneratedText> completions;  // [num_generations]
  std::int64_t missing = 0;                // completions that have not arrived
};

// State that the request threads share. Each thread repeatedly takes the next completion and requests it.
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
          text_of(format_count(done_before_), " of ", format_count(std::ssize(prompts_)), " prompts are already done"));
    }
    const std::int64_t missing = (std::ssize(prompts_) - done_before_) * options_.num_generations;
    const std::int64_t threads = std::min({num_seqs(options_.max_num_seqs, DeviceKind::kCpu), missing, kMostThreads});
    run_requests(static_cast<std::size_t>(threads), cancelled_, [this] { return ask_next(); });
    if (refused_ == 0) return;
    log_warning(text_of(format_count(refused_), " of ", format_count(std::ssize(prompts_)),
                        " prompts were refused and are left out; the first: ", first_refusal_));
  }

 private:
  struct Job {
    const GeneratePrompt* prompt = nullptr;
    std::int64_t number = 0;  // index of the completion
  };

  bool ask_next() {
    const std::optional<Job> job = next();
    if (!job) return false;
    const RandomStream seeds(static_cast<std::uint64_t>(options_.seed), "generate " + job->prompt->key);
    // 31 bits: servers parse the seed as a signed integer, some with 32 bits.
    const std::uint64_t seed = seeds.bits(static_cast<std::uint64_t>(job->number)) >> 1;
    take(*job, endpoint_.ask(*job->prompt, seed));
    return true;
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
    journal_.append(journal_row(options_, *job.prompt, asked->second.completions));
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
    if (is_current) number_ = options_.num_generations;  // skip the remaining completions of this prompt
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

  std::mutex mutex_;  // protects the members below and the journal
  Progress progress_;
  Clock::time_point start_ = Clock::now();
  std::size_t prompt_ = 0;   // index of the prompt of the next completion
  std::int64_t number_ = 0;  // index of the next completion
  std::unordered_map<const GeneratePrompt*, AskedPrompt> asked_;
  std::int64_t tokens_ = 0;
  std::int64_t answered_ = 0;  // prompts with all completions
  std::int64_t refused_ = 0;   // prompts that the server refused
  std::string first_refusal_;
};

}  // namespace

std::string completions_url(const std::string& endpoint) { return api_url(endpoint, "endpoint") + "/chat/completions"; }

void generate_at_endpoint(const GenerateOptions& options, std::span<const GeneratePrompt> prompts, Journal& journal) {
  EndpointRun(options, prompts, journal).run();
}

}  // namespace hone
