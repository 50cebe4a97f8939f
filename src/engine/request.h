// Requests to the generation engine and its results.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

class Grammar;

struct SamplingParams {
  double temperature = 1.0;                // 0: greedy decoding
  double top_p = 1.0;                      // 1: off
  double min_p = 0.0;                      // 0: off
  std::int64_t top_k = 0;                  // 0: off
  double repetition_penalty = 1.0;         // above 0, 1: off; for tokens of the prompt and the completion
  double frequency_penalty = 0.0;          // -2 to 2, 0: off; for each time that the completion has the token
  double presence_penalty = 0.0;           // -2 to 2, 0: off; if the completion has the token
  std::map<TokenId, double> logit_bias;    // -100 to 100, added to the logits of these tokens
  std::vector<TokenId> allowed_token_ids;  // empty: all tokens may be drawn; otherwise only these
  std::vector<TokenId> banned_token_ids;   // tokens that are never drawn
  // Sequences of tokens that the completion never has: the last of them is not drawn after the others.
  std::vector<std::vector<TokenId>> bad_words = {};
  // Tokens before which no stop token is drawn and no stop string ends the text, unless a grammar leaves nothing else.
  std::int64_t min_tokens = 0;
  std::int64_t logprobs = 0;  // most probable tokens to list with each generated one
  // Set: the log-probability of each token of the prompt is computed, and so many of the most probable tokens are
  // listed with it. The request then makes no use of the prefix cache.
  std::optional<std::int64_t> prompt_logprobs = std::nullopt;
  std::int64_t max_tokens = 256;
  std::uint64_t seed = 0;               // together with the prompt and the weights it determines every token
  std::vector<TokenId> stop_token_ids;  // the first of these ends the completion and is part of its tokens
  std::vector<std::string> stop;        // the text ends before the first of these strings
  bool detokenize = true;               // false: the completion has tokens and no text, and `stop` has no effect

  // Returns true if what may be drawn depends on the tokens before (engine/token_bans.h).
  [[nodiscard]] bool has_bans() const { return min_tokens > 0 || !bad_words.empty(); }
  [[nodiscard]] bool has_penalties() const {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0;
  }
  // Returns true if a step needs EngineOptions::adjust_logits: tokens are drawn from other logits than the model's, or
  // those of the prompt are given. Log-probabilities are always the model's.
  [[nodiscard]] bool adjusts_logits() const {
    return has_penalties() || !logit_bias.empty() || !allowed_token_ids.empty() || !banned_token_ids.empty() ||
           prompt_logprobs;
  }
};

// The adapter of a request, for engines of an AdapterSlots model.
struct RequestAdapter {
  std::int64_t slot = -1;  // -1: none
  std::int64_t id = 0;     // a number that no adapter with other values has had; 0: none
};

enum class Reasoning : std::uint8_t {
  kNone,      // the completion has no reasoning
  kPossible,  // it has, if its first token is <think>
  kOpened,    // it begins inside of the reasoning
};

// A grammar that the completion follows, except its reasoning.
struct Constraint {
  std::shared_ptr<const Grammar> grammar = nullptr;  // null: any text
  Reasoning reasoning = Reasoning::kNone;
};

// Tokens of a completion and their log-probabilities, [tokens] each.
struct DrawnTokens {
  std::vector<TokenId> tokens;
  std::vector<float> logps;

  bool operator==(const DrawnTokens&) const = default;
};

struct Request {
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;
  RequestAdapter adapter = {};
  // Stop tokens may be drawn only where the grammar may end. Where it can only end and there is no stop token, the
  // completion stops.
  Constraint constraint = {};
  // Beginning of the completion, drawn before for the same request, perhaps with other weights. The engine keeps it,
  // computes its keys and values and draws what follows, or nothing if it is complete. Not with logprobs or
  // prompt_logprobs.
  DrawnTokens begun = {};

  // Returns true if the engine needs EngineOptions::adjust_logits for it.
  [[nodiscard]] bool adjusts_logits() const {
    return sampling.adjusts_logits() || sampling.has_bans() || constraint.grammar != nullptr;
  }
};

enum class FinishReason : std::uint8_t {
  kNone,    // still running
  kStop,    // a stop token or a stop string
  kLength,  // max_tokens, or the engine's max_model_len
  kAbort,   // cancelled
};
[[nodiscard]] std::string_view name_of(FinishReason reason);

// A token that might have been drawn.
struct TokenLogprob {
  TokenId token = 0;
  float logp = 0;

  bool operator==(const TokenLogprob&) const = default;
};

struct Completion {
  std::vector<TokenId> tokens;  // includes the stop token
  std::vector<float> logps;     // log-probability of each token: log-softmax of logits / temperature (greedy: logits)
  // For each token the SamplingParams::logprobs most probable ones, in that order, with logps of the same kind; empty
  // if none were asked for. Penalties, biases and filters change neither.
  std::vector<std::vector<TokenLogprob>> top_logprobs;
  // With SamplingParams::prompt_logprobs: for each token of the prompt but the first its log-probability after those
  // before it, at temperature 1, and likewise the most probable tokens in its place.
  std::vector<float> prompt_logps;
  std::vector<std::vector<TokenLogprob>> prompt_top_logprobs;
  std::string text;  // without special tokens; cut before a stop string
  FinishReason finish_reason = FinishReason::kNone;
};

// Completions of some requests, and of those that an engine has begun next to them.
struct Generated {
  std::vector<Completion> completions;  // [requests]
  std::vector<Completion> ahead;        // [requests ahead]; kAbort: more of it is to be drawn
};

using RequestId = std::int64_t;

}  // namespace hone
