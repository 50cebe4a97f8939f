// Fuzz target: the input as the body of a request, in every API.

#include "core/json_value.h"
#include "fuzz/target.h"
#include "serve/chat_request.h"
#include "serve/completion_request.h"
#include "serve/embedding_request.h"
#include "serve/messages_request.h"
#include "serve/request_error.h"
#include "serve/responses_request.h"

namespace {

using namespace hone;

void check(const GenerationRequest& request) {
  HONE_ASSERT(request.n >= 1 && request.n <= kMaxChoices, "n is ", request.n);
  HONE_ASSERT(request.sampling.max_tokens >= 1, "max_tokens is ", request.sampling.max_tokens);
}
void check_chat(const ChatRequest& request) {
  check(request);
  HONE_ASSERT(!request.messages->empty(), "a request without messages");
  for (const Json& message : *request.messages) HONE_ASSERT(message["content"].is_string(), "a message without text");
}

void check_embedding(const EmbeddingRequest& request) {
  HONE_ASSERT(!request.inputs.empty() && request.inputs.size() <= kMaxEmbeddingInputs, request.inputs.size(),
              " inputs");
  HONE_ASSERT(request.dimensions.value_or(1) >= 1, "dimensions is ", request.dimensions.value_or(1));
  HONE_ASSERT(request.truncate_prompt_tokens.value_or(1) >= -1, "truncate_prompt_tokens is below -1");
  const std::vector<float> embedding(64, 0.125F);
  if (request.dimensions && *request.dimensions <= 64)
    HONE_ASSERT(std::ssize(shortened(embedding, *request.dimensions)) == *request.dimensions, "another size");
}

// Runs a parser, whose refusals must have a body.
template <class Parse>
void run(const Parse& parse) {
  fuzz::accepts([&] {
    try {
      parse();
    } catch (const RequestError& error) {
      const Json body = Json::parse(error_body(error.what(), error.param(), error.status()));
      HONE_ASSERT(body["error"]["message"].is_string(), "an error without a message");
      throw;
    }
  });
}

}  // namespace

HONE_FUZZ_TARGET(chat_request)(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  run([&] { check_chat(parse_chat_request(text, {})); });
  run([&] { check(parse_completion_request(text, {})); });
  run([&] { check_chat(parse_messages_request(text, {})); });
  run([&] { check_chat(parse_responses_request(text, {})); });
  run([&] { check_embedding(parse_embedding_request(text)); });
  return 0;
}
