#include "rl/server_rollout.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/interrupt.h"
#include "core/json_value.h"
#include "text/detokenizer.h"
#include "train/setup.h"
#include "train/whole_weights.h"

namespace hone {
namespace {

constexpr std::size_t kMostAtOnce = 64;  // concurrent requests to a server

// Returns a member of an object. Throws WrongAnswer(what) if it is missing or null.
const Json& member(const Json& object, const char* key, const char* what) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || found->is_null()) throw WrongAnswer(what);
  return *found;
}

// Returns the token ids of a choice: token_ids, or response_token_ids as SGLang names them.
const Json& token_ids_of(const Json& choice) {
  const char* other = "response_token_ids";
  return member(
      choice, choice.is_object() && choice.contains(other) ? other : "token_ids",
      "a choice has no token_ids although return_token_ids is set: the server is too old, or of another kind");
}

// Returns the completion of these tokens, up to the first stop token.
Completion completion_of(const DrawnTokens& drawn, const SamplingParams& sampling, const Tokenizer& tokenizer) {
  Completion completion;
  completion.finish_reason = FinishReason::kLength;
  Detokenizer detokenizer(tokenizer, true);
  for (std::size_t i = 0; i < drawn.tokens.size() && completion.finish_reason == FinishReason::kLength; ++i) {
    const TokenId id = drawn.tokens[i];
    completion.tokens.push_back(id);
    completion.logps.push_back(drawn.logps[i]);
    if (std::ranges::find(sampling.stop_token_ids, id) != sampling.stop_token_ids.end()) {
      completion.finish_reason = FinishReason::kStop;
    } else {
      completion.text += detokenizer.add(id);
    }
  }
  completion.text += detokenizer.flush();
  return completion;
}

Completion read_choice(const Json& choice, const SamplingParams& sampling, const Tokenizer& tokenizer,
                       std::int64_t vocab_size) {
  const Json& ids = token_ids_of(choice);
  const char* const no_logps = "a choice has no logprobs.token_logprobs although logprobs is set";
  const Json& logps = member(member(choice, "logprobs", no_logps), "token_logprobs", no_logps);
  if (!ids.is_array() || !logps.is_array() || ids.size() != logps.size() || ids.empty()) {
    throw WrongAnswer(text_of("a choice has ", ids.size(), " token_ids and ", logps.size(), " token_logprobs"));
  }
  if (static_cast<std::int64_t>(ids.size()) > sampling.max_tokens) {
    throw WrongAnswer(
        text_of("a choice has ", ids.size(), " tokens, but max_tokens ", sampling.max_tokens, " was requested"));
  }
  DrawnTokens drawn;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!ids[i].is_number_integer() || ids[i].get<std::int64_t>() < 0 || ids[i].get<std::int64_t>() >= vocab_size) {
      throw WrongAnswer(text_of("token id ", ids[i].dump(), " is outside the vocabulary of ", vocab_size));
    }
    if (!logps[i].is_number() || !std::isfinite(logps[i].get<double>())) {
      throw WrongAnswer(text_of("a log-probability is ", logps[i].dump(), ", expected a number"));
    }
    drawn.tokens.push_back(ids[i].get<TokenId>());
    drawn.logps.push_back(logps[i].get<float>());
  }
  return completion_of(drawn, sampling, tokenizer);
}

// The whole seed of each completion, so that hone serve draws the tokens that this process would draw.
void add_seeds(std::span<const Request> group, Json& body) {
  body.erase("seed");
  body["ignore_eos"] = true;  // only the stop tokens of the request end a completion, as in this process
  body["logprobs"] = 0;
  for (const Request& request : group) body["seeds"].push_back(request.sampling.seed);
}

Json body_of(const Request& request, std::size_t count) {
  const SamplingParams& sampling = request.sampling;
  // Every parameter is sent, because the server has its own defaults. Some servers read seeds as signed 32-bit numbers.
  return {{"prompt", request.prompt},
          {"n", count},
          {"seed", sampling.seed >> 33},
          {"temperature", sampling.temperature},
          {"top_p", sampling.top_p},
          {"top_k", sampling.top_k > 0 ? sampling.top_k : -1},
          {"min_p", sampling.min_p},
          {"repetition_penalty", sampling.repetition_penalty},
          {"max_tokens", sampling.max_tokens},
          {"stop_token_ids", sampling.stop_token_ids},
          {"logprobs", 1},
          {"return_token_ids", true}};
}

// Calls ask(i) for all i below `count`, at most `most` concurrently. The first exception cancels the others.
void for_all(std::size_t count, std::size_t most, std::atomic<bool>& cancelled,
             const std::function<void(std::size_t)>& ask) {
  std::atomic<std::size_t> next = 0;
  run_requests(std::min(count, most), cancelled, [&] {
    const std::size_t i = next++;
    if (i < count) ask(i);
    return i < count;
  });
}

}  // namespace

std::vector<Completion> read_server_answer(const std::string& body, const SamplingParams& sampling, std::size_t count,
                                           const Tokenizer& tokenizer, std::int64_t vocab_size) {
  const Json json = parse_json(body, "the answer");
  const Json& choices = member(json, "choices", "the answer has no choices");
  if (!choices.is_array() || choices.size() != count) {
    throw WrongAnswer(text_of("the answer has ", choices.size(), " choices, but ", count, " were requested"));
  }
  std::vector<Completion> completions(count);
  std::vector<bool> is_there(count, false);
  for (const Json& choice : choices) {
    const Json& index = member(choice, "index", "a choice has no index");
    const auto at = index.is_number_integer() ? index.get<std::int64_t>() : -1;
    if (at < 0 || at >= static_cast<std::int64_t>(count) || is_there[static_cast<std::size_t>(at)]) {
      throw WrongAnswer(
          text_of("the index ", index.dump(), " of a choice is repeated or not below the ", count, " requested"));
    }
    is_there[static_cast<std::size_t>(at)] = true;
    completions[static_cast<std::size_t>(at)] = read_choice(choice, sampling, tokenizer, vocab_size);
  }
  return completions;
}

ServerRollout::ServerRollout(const GrpoRun& run, const TensorStore& weights)
    : run_(run),
      servers_(rollout_server_urls(run.options)),
      client_(rollout_endpoint(run.options, cancelled_)),
      weights_(weights),
      sender_(run, weights.device()) {}

void ServerRollout::update_weights() {
  if (weights_sent_) return;
  TensorStore assembled;
  const bool has_part = &run_.model->whole() != run_.model.get();
  if (has_part) {
    const UpdateShards shards(*run_.model, optimizer_options(run_.options), 1);
    assembled = HeldWeights(shards, false, 0).assemble(weights_, run_.job);
  }
  bool stops = false;
  try {
    if (run_.job.is_first()) sender_.send(has_part ? assembled : weights_);
  } catch (const Interrupted&) {
    stops = true;  // the other ranks wait; they end as this one does
  }
  if (run_.job.any(stops)) throw Interrupted();
  weights_sent_ = true;
}

std::vector<Completion> ServerRollout::ask(const std::string& server, std::span<const Request> group) const {
  const Request& request = group.front();
  const std::size_t count = group.size();
  std::vector<Completion> completions;
  Json body = body_of(request, count);
  if (run_.options.rollout_server == RolloutServer::kHone) add_seeds(group, body);
  const std::string url = server + "/v1/completions";
  const std::string refusal = client_.post(url, body.dump(), "completion", [&](const std::string& answer) {
    completions = read_server_answer(answer, request.sampling, count, run_.tokenizer, run_.model->shape().vocab_size);
  });
  if (!refusal.empty()) throw Error(url, refusal);
  return completions;
}

ServerRollout::~ServerRollout() {
  cancelled_ = true;
  if (ahead_.valid()) ahead_.wait();
}

std::vector<Completion> ServerRollout::generate(std::span<const Request> requests, const OnFinished& on_finished) {
  HONE_ASSERT(!ahead_.valid(), "requests ahead are under way");
  if (requests.empty() || requests.front().begun.tokens.empty()) return draw(requests, on_finished);
  std::vector<Completion> completions;
  for (const Request& request : requests) {
    completions.push_back(completion_of(request.begun, request.sampling, run_.tokenizer));
    on_finished(completions.size() - 1, completions.back());
  }
  return completions;
}

Generated ServerRollout::generate_ahead(std::span<const Request> requests, std::span<const Request> ahead,
                                        const OnFinished& on_finished) {
  std::vector<Completion> completions = generate(requests, on_finished);
  if (ahead.empty()) return {std::move(completions), {}};
  ahead_ = std::async(std::launch::async, [this, later = std::vector<Request>(ahead.begin(), ahead.end())] {
    return draw(later, [](std::size_t, const Completion&) {});
  });
  return {std::move(completions), {}};
}

std::vector<Completion> ServerRollout::finish_ahead() {
  return ahead_.valid() ? ahead_.get() : std::vector<Completion>();
}

std::vector<Completion> ServerRollout::draw(std::span<const Request> requests, const OnFinished& on_finished) {
  std::vector<std::size_t> firsts;  // first request of each group with the same prompt
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i == 0 || requests[i].prompt != requests[i - 1].prompt) firsts.push_back(i);
  }
  std::vector<Completion> completions(requests.size());
  for_all(firsts.size(), kMostAtOnce * servers_.size(), cancelled_, [&](std::size_t group) {
    const std::size_t first = firsts[group];
    const std::size_t end = group + 1 < firsts.size() ? firsts[group + 1] : requests.size();
    std::ranges::move(ask(server_of(group), requests.subspan(first, end - first)),
                      completions.begin() + static_cast<std::ptrdiff_t>(first));
    for (std::size_t i = first; i < end; ++i) on_finished(i, completions[i]);
  });
  return completions;
}

}  // namespace hone
