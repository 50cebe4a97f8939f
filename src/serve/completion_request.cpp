#include "serve/completion_request.h"

#include <limits>
#include <utility>

#include "core/json_value.h"
#include "serve/request_error.h"

namespace hone {
namespace {

std::vector<TokenId> prompt_tokens(const Json& list, const std::string& param) {
  std::vector<TokenId> tokens;
  for (const Json& id : list)
    tokens.push_back(
        static_cast<TokenId>(RequestParameters::checked_integer(id, param, 0, std::numeric_limits<TokenId>::max())));
  return tokens;
}

// A text, an array of texts, an array of token ids, or an array of such arrays.
void read_prompts(RequestParameters& parameters, CompletionRequest& request) {
  const Json& prompt = parameters.value("prompt");
  if (prompt.is_string()) {
    request.prompts.emplace_back(prompt.get<std::string>());
    return;
  }
  if (!prompt.is_array()) RequestParameters::refuse("prompt", prompt, "a string or an array");
  if (prompt.empty()) throw RequestError("prompt", "is empty");
  if (prompt[0].is_number()) {
    request.prompts.emplace_back(prompt_tokens(prompt, "prompt"));
    return;
  }
  if (prompt.size() * static_cast<std::size_t>(request.n) > kMaxPrompts)
    throw RequestError("prompt", text_of("has ", prompt.size(), " prompts with n ", request.n),
                       text_of("at most ", kMaxPrompts, " completions"));
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const std::string param = text_of("prompt[", i, "]");
    if (prompt[i].is_string())
      request.prompts.emplace_back(prompt[i].get<std::string>());
    else if (prompt[i].is_array())
      request.prompts.emplace_back(prompt_tokens(prompt[i], param));
    else
      RequestParameters::refuse(param, prompt[i], "a string or an array of token ids");
  }
}

// Seeds of all completions, which then do not follow from one seed: hone's own parameter.
void read_seeds(RequestParameters& parameters, CompletionRequest& request) {
  const Json& seeds = parameters.value("seeds");
  if (seeds.is_null()) return;
  if (!seeds.is_array()) RequestParameters::refuse("seeds", seeds, "an array of numbers");
  const std::size_t count = request.prompts.size() * static_cast<std::size_t>(request.n);
  if (seeds.size() != count)
    throw RequestError("seeds", text_of("has ", seeds.size(), " numbers for ", count, " completions"));
  for (const Json& seed : seeds) {
    if (!seed.is_number_integer()) RequestParameters::refuse("seeds", seed, "whole numbers");
    request.seeds.push_back(seed.is_number_unsigned() ? seed.get<std::uint64_t>()
                                                      : static_cast<std::uint64_t>(seed.get<std::int64_t>()));
  }
}

}  // namespace

CompletionRequest parse_completion_request(std::string_view body, const SamplingParams& defaults) {
  const Json json = parse_body(body);
  RequestParameters parameters(json);
  CompletionRequest request;
  request.sampling = defaults;
  read_generation(parameters, request);
  read_prompts(parameters, request);
  read_seeds(parameters, request);
  parameters.boolean("echo", request.echo);
  parameters.boolean("return_token_ids", request.token_ids);
  parameters.boolean("return_tokens_as_token_ids", request.tokens_as_ids);
  parameters.boolean("add_special_tokens", request.add_special_tokens);
  request.logprobs = parameters.integer("logprobs", request.sampling.logprobs, 0, kMaxTopLogprobs);
  parameters.only("top_logprobs", 0);
  if (request.echo && request.logprobs) {
    auto& listed = request.sampling.prompt_logprobs;
    if (listed && *listed != request.sampling.logprobs)
      throw RequestError("prompt_logprobs",
                         text_of("is ", *listed, ", but with echo logprobs counts: ", request.sampling.logprobs),
                         "leave one of them out");
    request.echoes_logprobs = !listed;
    listed = request.sampling.logprobs;
  }
  parameters.only("suffix", "");
  read_neutral(parameters);
  parameters.refuse_others();
  return request;
}

}  // namespace hone
