#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "cli/bench/kind.h"
#include "cli/bench/results.h"
#include "cli/profile/timing.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/random.h"
#include "core/strings.h"
#include "endpoint/client.h"
#include "hub/http.h"

namespace hone {
namespace {

struct BenchServeOptions {
  std::string endpoint = "http://127.0.0.1:8000";
  std::string model;
  std::string endpoint_key_variable = "OPENAI_API_KEY";
  std::int64_t num_prompts = 200;
  std::int64_t max_concurrency = 32;
  double request_rate = 0;
  std::int64_t prompt_words = 128;
  std::int64_t shared_words = 0;
  std::int64_t max_tokens = 128;
  std::int64_t seed = 0;
  std::string json;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Server");
    v("endpoint", endpoint, "URL of the server, with or without /v1");
    v("model", model, "Name of the model on the server; unset: the first that it lists");
    v("endpoint_key_variable", endpoint_key_variable, "Environment variable with the server's API key");
    v.group("Load");
    v("num_prompts", num_prompts, "Requests", within(1, 1e7));
    v("max_concurrency", max_concurrency, "Requests that are under way concurrently", within(1, 4096));
    v("request_rate", request_rate,
      "Requests that arrive in a second, at random times; 0: one arrives whenever another has ended", at_least(0));
    v("prompt_words", prompt_words, "Random words of a prompt", within(1, 1e6));
    v("shared_words", shared_words, "Words at the beginning that all prompts share", at_least(0));
    v("max_tokens", max_tokens, "Tokens of a completion", within(1, 1e6));
    v("seed", seed, "Seed of words and arrivals", at_least(0));
    v.group("Measurement");
    v("json", json, "JSON file to write the results to");
  }
};
// One request, in seconds.
struct Answered {
  double first = 0;                // from its arrival to the first event with text
  double whole = 0;                // from its arrival to its end
  std::vector<double> between;     // between events
  std::int64_t prompt_tokens = 0;  // as the server counts them
  std::int64_t tokens = 0;
  std::string failure;
};

// Reads the events of a stream as they come.
class EventReader {
 public:
  EventReader(Answered& answered, Clock::time_point begin) : answered_(answered), begin_(begin) {}

  void take(std::string_view piece) {
    text_ += piece;
    for (std::size_t end = 0; (end = text_.find("\n\n")) != std::string::npos; text_.erase(0, end + 2)) {
      const std::string_view event = std::string_view(text_).substr(0, end);
      if (event.starts_with("data: ") && event != "data: [DONE]") read(event.substr(6));
    }
  }

 private:
  void read(std::string_view data) {
    const Json event = parse_json(data, "event");
    if (event.contains("usage") && event["usage"].is_object()) {
      answered_.prompt_tokens = event["usage"].value("prompt_tokens", std::int64_t{0});
      answered_.tokens = event["usage"].value("completion_tokens", std::int64_t{0});
    }
    if (!event.contains("choices") || event["choices"].empty()) return;
    const double now = seconds_since(begin_);
    if (answered_.first == 0)
      answered_.first = now;
    else
      answered_.between.push_back(now - last_);
    last_ = now;
  }

  Answered& answered_;
  Clock::time_point begin_;
  double last_ = 0;
  std::string text_;
};

class ServerLoad {
 public:
  ServerLoad(const BenchServeOptions& options, std::string url, std::string model)
      : options_(options),
        url_(std::move(url)),
        model_(std::move(model)),
        answers_(static_cast<std::size_t>(options.num_prompts)) {
    if (const char* key = std::getenv(options.endpoint_key_variable.c_str())) token_ = key;
    const RandomStream random(static_cast<std::uint64_t>(options.seed), "arrivals");
    double at = 0;
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      arrivals_.push_back(at);
      const double uniform = (static_cast<double>(random.bits(i)) + 0.5) / 4294967296.0;
      if (options.request_rate > 0) at -= std::log(uniform) / options.request_rate;
    }
  }

  // Sends all requests and returns their answers.
  const std::vector<Answered>& run() {
    begin_ = Clock::now();
    std::atomic<bool> cancelled = false;
    std::atomic<std::size_t> next = 0;
    const auto threads = static_cast<std::size_t>(std::min(options_.max_concurrency, options_.num_prompts));
    run_requests(threads, cancelled, [&] {
      const std::size_t index = next++;
      if (index >= answers_.size()) return false;
      answers_[index] = send(index, cancelled);
      return true;
    });
    seconds_ = seconds_since(begin_);
    return answers_;
  }
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  [[nodiscard]] std::string prompt(std::size_t index) const {
    std::string text;
    const auto add_words = [&](std::string_view name, std::int64_t count) {
      const RandomStream random(static_cast<std::uint64_t>(options_.seed), name);
      for (std::int64_t i = 0; i < count; ++i) {
        static constexpr const char* kWords[] = {"the", "sum", "of",   "two",  "even", "is",    "prime", "then",
                                                 "for", "all", "long", "line", "red",  "water", "house", "time"};
        text.append(kWords[random.bits(static_cast<std::uint64_t>(i)) % std::size(kWords)]).append(" ");
      }
    };
    const std::int64_t shared = std::min(options_.shared_words, options_.prompt_words);
    add_words("shared words", shared);
    add_words(text_of("words ", index), options_.prompt_words - shared);
    return text;
  }

  [[nodiscard]] Answered send(std::size_t index, const std::atomic<bool>& cancelled) const {
    const Json body{{"model", model_},
                    {"prompt", prompt(index)},
                    {"max_tokens", options_.max_tokens},
                    {"temperature", 0},
                    {"ignore_eos", true},
                    {"stream", true},
                    {"stream_options", {{"include_usage", true}}}};
    Clock::time_point begin = Clock::now();
    if (options_.request_rate > 0) {
      // A request that had to wait for a free thread counts from its arrival.
      begin = begin_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(arrivals_[index]));
      while (Clock::now() < begin) {
        throw_if_interrupted();
        std::this_thread::sleep_for(std::min<Clock::duration>(begin - Clock::now(), std::chrono::milliseconds(100)));
      }
    }
    Answered answered;
    EventReader reader(answered, begin);
    const HttpAnswer answer =
        http_post({.url = url_ + "/completions",
                   .token = token_,
                   .body = body.dump(),
                   .timeout = std::chrono::hours(24),
                   .cancelled = &cancelled,
                   .take = [&](const HttpAnswer&, std::string_view piece) { reader.take(piece); }});
    answered.whole = seconds_since(begin);
    if (!answer.failure.empty()) answered.failure = answer.failure;
    if (answer.status != 200) answered.failure = text_of("status ", answer.status, " ", answer.body.substr(0, 300));
    if (answered.failure.empty() && answered.tokens == 0) answered.failure = "the stream has no usage";
    return answered;
  }

  const BenchServeOptions& options_;
  std::string url_;
  std::string model_;
  std::string token_;
  std::vector<double> arrivals_;   // [num_prompts] seconds after the start
  std::vector<Answered> answers_;  // [num_prompts]
  Clock::time_point begin_;
  double seconds_ = 0;
};

// Returns the first model that the server lists. Throws Error if it does not answer.
std::string first_model(const std::string& url, const std::string& key_variable) {
  const char* key = std::getenv(key_variable.c_str());
  const HttpAnswer answer = http_get({.url = url + "/models", .token = key != nullptr ? key : ""});
  if (answer.status != 200) {
    throw Error(url, answer.status == 0 ? text_of("no answer: ", answer.failure) : text_of("status ", answer.status),
                "start the server, or set --endpoint");
  }
  const Json models = parse_json(answer.body, url + "/models");
  if (!models.is_object() || !models.contains("data") || models["data"].empty() || !models["data"][0].contains("id"))
    throw Error(url + "/models", "lists no model", "set --model");
  return models["data"][0]["id"].get<std::string>();
}

// The value below which a share of the sorted values lies.
double quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto index = static_cast<std::size_t>(std::lround(share * static_cast<double>(sorted.size() - 1)));
  return sorted[index];
}

// Prints and collects the figures of a run.
class ServeReport {
 public:
  explicit ServeReport(std::string shape) : shape_(std::move(shape)) {}

  void rate(const char* name, double figure, const char* unit) {
    std::printf("%-24s %12.1f %s\n", name, figure, unit);
    rows_.push_back({text_of("serve, ", name), shape_, figure, unit});
  }
  void times(const char* name, std::vector<double> seconds) {
    std::ranges::sort(seconds);
    double sum = 0;
    for (const double one : seconds) sum += one;
    const double mean = seconds.empty() ? 0 : sum / static_cast<double>(seconds.size());
    const std::pair<const char*, double> figures[] = {{"mean", mean},
                                                      {"p50", quantile(seconds, 0.5)},
                                                      {"p90", quantile(seconds, 0.9)},
                                                      {"p99", quantile(seconds, 0.99)}};
    std::printf("%-24s", name);
    for (const auto& [which, figure] : figures) {
      std::printf(" %s %.2f ms ", which, figure * 1e3);
      rows_.push_back({text_of("serve, ", name, ", ", which), shape_, figure * 1e3, "ms"});
    }
    std::printf("\n");
  }
  [[nodiscard]] const std::vector<ResultRow>& rows() const { return rows_; }

 private:
  std::string shape_;
  std::vector<ResultRow> rows_;
};

int serve_bench(BenchServeOptions& options, const OptionInput&, const std::string& command) {
  catch_interrupts();
  const std::string url = api_url(options.endpoint, "endpoint");
  const std::string model = options.model.empty() ? first_model(url, options.endpoint_key_variable) : options.model;
  ServerLoad load(options, url, model);
  const std::vector<Answered>& answers = load.run();
  std::vector<double> first;
  std::vector<double> between;
  std::vector<double> whole;
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens = 0;
  std::string failure;
  for (const Answered& answer : answers) {
    if (!answer.failure.empty()) {
      failure = answer.failure;
      continue;
    }
    first.push_back(answer.first);
    whole.push_back(answer.whole);
    between.insert(between.end(), answer.between.begin(), answer.between.end());
    prompt_tokens += answer.prompt_tokens;
    tokens += answer.tokens;
  }
  const auto good = static_cast<double>(first.size());
  if (first.empty()) throw Error(url, text_of("no request was answered; the last failure: ", failure));
  const std::string load_text = options.request_rate > 0 ? text_of(options.request_rate, " requests/s")
                                                         : text_of(options.max_concurrency, " concurrent");
  std::printf("%s: %zu of %zu requests answered in %.2f s, %s\n", model.c_str(), first.size(), answers.size(),
              load.seconds(), load_text.c_str());
  if (!failure.empty()) std::printf("the last failure: %s\n", printable_line(failure).c_str());
  ServeReport report(
      text_of(model, ", ", load_text, ", ", options.prompt_words, " words, ", options.max_tokens, " tokens"));
  report.rate("requests", good / load.seconds(), "requests/s");
  report.rate("output", static_cast<double>(tokens) / load.seconds(), "tokens/s");
  report.rate("prompts and output", static_cast<double>(prompt_tokens + tokens) / load.seconds(), "tokens/s");
  report.times("time to first token", std::move(first));
  report.times("between events", std::move(between));
  report.times("whole request", std::move(whole));
  if (!options.json.empty()) write_results(options.json, report.rows(), url, command);
  return failure.empty() ? 0 : 1;
}

}  // namespace

BenchKind bench_serve() {
  return bench_kind("serve",
                    "requests to an OpenAI-compatible server: rates, times to the first token and between tokens",
                    serve_bench);
}

}  // namespace hone
