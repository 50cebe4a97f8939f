// The model of a server, as its endpoints know it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/json.h"
#include "engine/request.h"
#include "grammar/grammar.h"
#include "serve/adapter_table.h"
#include "serve/generation_request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hone {

// The embeddings of a server that computes them.
struct ServedEmbeddings {
  std::int64_t size = 0;                 // components of an embedding: the model's hidden_size
  bool is_matryoshka = false;            // the model was trained so that its first components can be used alone
  std::vector<std::int64_t> dimensions;  // the numbers of components that it was trained for; empty: any
};

struct ServedModel {
  std::vector<std::string> names;  // at least one; answers state the first unless the request names another
  std::string path;
  Tokenizer tokenizer;
  ChatTemplate chat_template;
  std::vector<TokenId> stop_token_ids;
  SamplingParams defaults;                         // of requests that do not state them
  std::optional<std::int64_t> default_max_tokens;  // of requests that do not state it; unset: what max_model_len leaves
  std::int64_t max_model_len = 0;
  std::int64_t vocab_size = 0;
  DType dtype = DType::kF32;  // of the weights without a fixed type
  std::int64_t created = 0;   // seconds since 1970
  bool split_reasoning = true;
  std::shared_ptr<GrammarCompiler> grammars = nullptr;  // null: no structured output
  std::shared_ptr<AdapterTable> adapters = nullptr;     // null: the server has no slots for adapters
  std::optional<ServedEmbeddings> embeddings = std::nullopt;
};

// Applies the sampling parameters of generation_config.json (JSON text) to the defaults. Throws Error if one of them is
// not a number or is out of range.
void apply_generation_config(const std::string& generation_config, ServedModel& model);

// Returns the name that answers state. Throws RequestError with status 404 if the model has no such name.
[[nodiscard]] std::string answering_name(const ServedModel& model, const std::string& requested);

// Returns the adapter that a request names as its model; null if it names the base model or nothing. Throws
// RequestError with status 404 for any other name.
[[nodiscard]] std::shared_ptr<const ServedAdapter> adapter_named(const ServedModel& model,
                                                                 const std::string& requested);

// Renders messages and returns the text of the prompt. Throws RequestError if the template refuses them.
[[nodiscard]] std::string rendered_prompt(const ServedModel& model, const Json& messages, const Json& variables,
                                          bool add_generation_prompt = true);
// Encodes a text. Throws RequestError if the vocabulary cannot represent it.
[[nodiscard]] std::vector<TokenId> encoded(const ServedModel& model, std::string_view text, bool add_special_tokens,
                                           std::string_view param);

// Returns the engine's requests for n completions of a prompt. `param` names the prompt in messages;
// `usual_max_tokens` holds if neither the request nor the model states a maximum. Throws RequestError if the prompt and
// its completion do not fit into max_model_len, or if a value is not valid for this model.
[[nodiscard]] std::vector<Request> engine_requests(const ServedModel& model, const GenerationRequest& request,
                                                   const std::vector<TokenId>& prompt, std::string_view param,
                                                   std::optional<std::int64_t> usual_max_tokens = std::nullopt);

// A new identifier: the prefix and 24 random hexadecimal digits.
[[nodiscard]] std::string new_identifier(std::string_view prefix);

}  // namespace hone
