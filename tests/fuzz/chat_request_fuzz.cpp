// Fuzz target: the input as the body of a chat request.

#include "core/json_value.h"
#include "fuzz/target.h"
#include "serve/chat_request.h"
#include "serve/request_error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::accepts([&] {
    try {
      const ChatRequest request = parse_chat_request(text, {});
      HONE_ASSERT(!request.messages->empty(), "a request without messages");
      HONE_ASSERT(request.n >= 1 && request.n <= kMaxChoices, "n is ", request.n);
      HONE_ASSERT(request.sampling.max_tokens >= 1, "max_tokens is ", request.sampling.max_tokens);
      for (const Json& message : *request.messages)
        HONE_ASSERT(message["content"].is_string(), "a message without text");
    } catch (const RequestError& error) {
      const Json body = Json::parse(error_body(error.what(), error.param(), error.status()));
      HONE_ASSERT(body["error"]["message"].is_string(), "an error without a message");
      throw;
    }
  });
  return 0;
}
