#include "serve/served_model.h"

#include <algorithm>
#include <array>
#include <random>

#include "core/json_value.h"
#include "data/encode.h"
#include "engine/request_check.h"
#include "serve/request_error.h"
#include "serve/request_parameters.h"

namespace hone {

void apply_generation_config(const std::string& generation_config, ServedModel& model) {
  const Json config = parse_json(generation_config, "generation_config.json");
  if (!config.is_object()) return;
  try {
    RequestParameters parameters(config, "generation_config.json: ");
    read_distribution(parameters, model.defaults);
    parameters.number("repetition_penalty", model.defaults.repetition_penalty, 0.01, 100.0);
    std::int64_t most = 0;
    if (parameters.integer("max_new_tokens", most, 1, std::int64_t{1} << 30)) model.default_max_tokens = most;
  } catch (const RequestError& error) {
    throw Error(error.what(), "", "correct the file, or use --generation_config neutral");
  }
}

std::string answering_name(const ServedModel& model, const std::string& requested) {
  (void)adapter_named(model, requested);
  return requested.empty() ? model.names.front() : requested;
}

std::shared_ptr<const ServedAdapter> adapter_named(const ServedModel& model, const std::string& requested) {
  if (requested.empty() || std::ranges::find(model.names, requested) != model.names.end()) return nullptr;
  std::shared_ptr<const ServedAdapter> adapter = model.adapters != nullptr ? model.adapters->find(requested) : nullptr;
  if (adapter != nullptr) return adapter;
  throw RequestError("model", text_of("\"", requested, "\" is not served"), text_of("use ", model.names.front()), 404);
}

std::string rendered_prompt(const ServedModel& model, const Json& messages, const Json& variables,
                            bool add_generation_prompt) {
  Json all = template_variables(model.tokenizer);
  for (const auto& [key, value] : variables.items()) all[key] = value;
  try {
    return model.chat_template.render(messages, add_generation_prompt, all).text;
  } catch (const Error& error) {
    throw RequestError("messages", text_of("the chat template refuses them: ", error.what()));
  }
}

std::vector<TokenId> encoded(const ServedModel& model, std::string_view text, bool add_special_tokens,
                             std::string_view param) {
  try {
    std::vector<TokenId> tokens = model.tokenizer.encode(text);
    if (add_special_tokens) {
      const auto& leading = model.tokenizer.leading_tokens();
      const auto& trailing = model.tokenizer.trailing_tokens();
      tokens.insert(tokens.begin(), leading.begin(), leading.end());
      tokens.insert(tokens.end(), trailing.begin(), trailing.end());
    }
    return tokens;
  } catch (const Error& error) {
    throw RequestError(param, error.what());
  }
}

namespace {

// Returns the most tokens of a completion.
std::int64_t completion_limit(const ServedModel& model, const GenerationRequest& request, std::int64_t prompt_tokens,
                              std::string_view param, std::optional<std::int64_t> usual_max_tokens) {
  const std::int64_t left = model.max_model_len - prompt_tokens;
  if (prompt_tokens == 0) throw RequestError(param, "has no tokens");
  if (left < 1) {
    throw RequestError(param, text_of("has ", prompt_tokens, " tokens; max_model_len is ", model.max_model_len,
                                      ", which leaves no room for a completion"));
  }
  if (!request.has_max_tokens) {
    const std::optional<std::int64_t> usual = model.default_max_tokens ? model.default_max_tokens : usual_max_tokens;
    return std::min(left, usual.value_or(left));
  }
  if (request.sampling.max_tokens > left) {
    throw RequestError("max_tokens",
                       text_of("is ", request.sampling.max_tokens, ", but after a prompt of ", prompt_tokens,
                               " tokens max_model_len ", model.max_model_len, " leaves ", left));
  }
  return request.sampling.max_tokens;
}

std::shared_ptr<const Grammar> compiled(const ServedModel& model, const RequestedGrammar& grammar) {
  if (model.grammars == nullptr) throw RequestError(grammar.param, "is not supported by this server");
  try {
    return model.grammars->compile(grammar.spec);
  } catch (const Error& error) {
    throw RequestError(grammar.param, error.what());
  }
}

// The sequences of tokens of texts that a completion never has: each as it begins a line and as it follows a space, if
// the space is part of its first token (vLLM's rule).
std::vector<std::vector<TokenId>> bad_word_tokens(const ServedModel& model, const std::vector<std::string>& words) {
  std::vector<std::vector<TokenId>> sequences;
  for (const std::string& word : words) {
    const std::string bare = word.substr(std::min(word.find_first_not_of(' '), word.size()));
    std::vector<TokenId> plain = encoded(model, bare, false, "bad_words");
    std::vector<TokenId> spaced = encoded(model, " " + bare, false, "bad_words");
    const bool differs =
        !plain.empty() && !spaced.empty() && spaced.front() != plain.front() && spaced.size() == plain.size();
    if (!plain.empty()) sequences.push_back(std::move(plain));
    if (differs) sequences.push_back(std::move(spaced));
  }
  return sequences;
}

std::uint64_t random_bits() {
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seeds{device(), device(), device(), device()};
    return std::mt19937_64(seeds);
  }();
  return generator();
}

}  // namespace

std::vector<Request> engine_requests(const ServedModel& model, const GenerationRequest& request,
                                     const std::vector<TokenId>& prompt, std::string_view param,
                                     std::optional<std::int64_t> usual_max_tokens) {
  SamplingParams sampling = request.sampling;
  sampling.max_tokens = completion_limit(model, request, std::ssize(prompt), param, usual_max_tokens);
  for (const TokenId token : prompt) {
    if (token < 0 || token >= model.vocab_size)
      throw RequestError(param, text_of("token ", token, " is outside the vocabulary of ", model.vocab_size));
  }
  if (!request.ignore_eos) {
    sampling.stop_token_ids.insert(sampling.stop_token_ids.end(), model.stop_token_ids.begin(),
                                   model.stop_token_ids.end());
  }
  sampling.bad_words = bad_word_tokens(model, request.bad_words);
  try {
    check_adjustments(sampling, model.vocab_size);
  } catch (const Error& error) {
    const std::string_view text = error.what();
    throw RequestError(text.substr(0, text.find(':')), text.substr(std::min(text.find(": ") + 2, text.size())));
  }
  if (!request.has_seed) sampling.seed = random_bits();
  const Constraint constraint{.grammar = request.grammar ? compiled(model, *request.grammar) : nullptr};
  std::vector<Request> requests;
  for (std::int64_t i = 0; i < request.n; ++i) {
    requests.push_back({.prompt = prompt, .sampling = sampling, .constraint = constraint});
    ++sampling.seed;
  }
  return requests;
}

std::string new_identifier(std::string_view prefix) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(prefix);
  for (int half = 0; half < 2; ++half) {
    std::uint64_t bits = random_bits();
    for (int digit = 0; digit < 12; ++digit, bits >>= 4) text += kDigits[bits & 15];
  }
  return text;
}

}  // namespace hone
