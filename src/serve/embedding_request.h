// The body of POST /v1/embeddings, read and checked, and the text of its answer.
// Source: https://platform.openai.com/docs/api-reference/embeddings
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

// Maximum inputs of one request.
inline constexpr std::size_t kMaxEmbeddingInputs = 2048;

struct EmbeddingRequest {
  std::string model;                                                    // empty: the body has none
  std::vector<std::variant<std::string, std::vector<TokenId>>> inputs;  // at least one
  bool base64 = false;                                                  // encoding_format; otherwise numbers
  std::optional<std::int64_t> dimensions;
  bool add_special_tokens = true;  // to inputs that are texts
  // Tokens of an input that are kept, its last ones as vLLM keeps them; -1: as many as the server takes.
  std::optional<std::int64_t> truncate_prompt_tokens;
};

// Parses a body. Throws RequestError that names the parameter.
[[nodiscard]] EmbeddingRequest parse_embedding_request(std::string_view body);

// Returns the first `dimensions` components, scaled to length 1 again.
[[nodiscard]] std::vector<float> shortened(std::span<const float> embedding, std::int64_t dimensions);
// Returns a vector as JSON: an array of numbers that read back as the same floats, or a string with the base64 of
// little-endian floats.
[[nodiscard]] std::string embedding_text(std::span<const float> embedding, bool base64);

}  // namespace hone
