#include "serve/embedding_request.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/json_value.h"
#include "core/strings.h"
#include "serve/request_error.h"
#include "serve/request_parameters.h"

namespace hone {
namespace {

static_assert(std::endian::native == std::endian::little, "embeddings are sent as they are in memory");

std::vector<TokenId> input_tokens(const Json& ids, const std::string& param) {
  std::vector<TokenId> tokens;
  tokens.reserve(ids.size());
  for (const Json& id : ids)
    tokens.push_back(
        static_cast<TokenId>(RequestParameters::checked_integer(id, param, 0, std::numeric_limits<TokenId>::max())));
  return tokens;
}

// A text, an array of texts, an array of token ids, or an array of such arrays.
void read_inputs(const Json& input, EmbeddingRequest& request) {
  constexpr std::string_view kExpected = "a string, an array of strings, or arrays of token ids";
  if (input.is_string()) return request.inputs.emplace_back(input.get<std::string>()), void();
  if (!input.is_array()) RequestParameters::refuse("input", input, kExpected);
  if (input.empty()) throw RequestError("input", "is empty", "give at least one text");
  if (input.front().is_number()) return request.inputs.emplace_back(input_tokens(input, "input")), void();
  if (input.size() > kMaxEmbeddingInputs)
    throw RequestError("input", text_of("has ", input.size(), " inputs"), text_of("at most ", kMaxEmbeddingInputs));
  for (std::size_t i = 0; i < input.size(); ++i) {
    const std::string param = text_of("input[", i, "]");
    if (input[i].is_string())
      request.inputs.emplace_back(input[i].get<std::string>());
    else if (input[i].is_array())
      request.inputs.emplace_back(input_tokens(input[i], param));
    else
      RequestParameters::refuse(param, input[i], "a string or an array of token ids");
  }
}

}  // namespace

EmbeddingRequest parse_embedding_request(std::string_view body) {
  const Json json = parse_body(body);
  RequestParameters parameters(json);
  EmbeddingRequest request;
  parameters.text("model", request.model);
  const Json& input = parameters.value("input");
  if (input.is_null()) throw RequestError("input", "is missing", "give a text or several");
  read_inputs(input, request);
  std::string format = "float";
  parameters.text("encoding_format", format);
  if (format != "float" && format != "base64")
    throw RequestError("encoding_format", text_of("is \"", format, "\""), "expected float or base64");
  request.base64 = format == "base64";
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  std::int64_t number = 0;
  if (parameters.integer("dimensions", number, 1, kMost)) request.dimensions = number;
  if (parameters.integer("truncate_prompt_tokens", number, -1, kMost)) {
    if (number == 0) throw RequestError("truncate_prompt_tokens", "is 0", "expected -1 or at least 1");
    request.truncate_prompt_tokens = number;
  }
  parameters.boolean("add_special_tokens", request.add_special_tokens);
  parameters.only("normalize", true);
  parameters.only("priority", 0);
  for (const char* key : {"user", "request_id"}) parameters.ignore(key);
  parameters.refuse_others();
  return request;
}

std::vector<float> shortened(std::span<const float> embedding, std::int64_t dimensions) {
  std::vector<float> result(embedding.begin(), embedding.begin() + dimensions);
  double squares = 0;
  for (const float value : result) squares += static_cast<double>(value) * static_cast<double>(value);
  if (squares == 0) return result;
  for (float& value : result) value = static_cast<float>(static_cast<double>(value) / std::sqrt(squares));
  return result;
}

std::string embedding_text(std::span<const float> embedding, bool base64) {
  if (base64) {
    const auto bytes = std::as_bytes(embedding);
    return "\"" + encode_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()}) + "\"";
  }
  std::string text = "[";
  for (const float value : embedding) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    if (text.size() > 1) text += ',';
    // JSON has no other numbers. Weights that give them give no usable embedding either way.
    text += std::isfinite(value) ? std::string_view(digits.data(), end) : std::string_view("null");
  }
  return text + "]";
}

}  // namespace hone
