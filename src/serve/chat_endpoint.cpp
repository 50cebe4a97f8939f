#include "core/json_value.h"
#include "serve/answer_sink.h"
#include "serve/chat_form.h"
#include "serve/chat_request.h"
#include "serve/endpoints.h"

namespace hone {
namespace {

// Returns true if the prompt ends inside of the reasoning.
bool opens_reasoning(std::string_view prompt) {
  const std::size_t end = prompt.find_last_not_of(" \t\r\n");
  return end != std::string_view::npos && prompt.substr(0, end + 1).ends_with("<think>");
}

}  // namespace

void answer_chat(const Service& service, const ServerRequest& http, const std::shared_ptr<ServerReply>& reply) {
  const ServedModel& model = service.model();
  const ChatRequest request = parse_chat_request(http.body, model.defaults);
  const std::string name = answering_name(model, request.model);
  const std::string prompt = rendered_prompt(model, *request.messages, *request.variables);
  const std::vector<TokenId> tokens = encoded(model, prompt, false, "messages");
  GenerationJob job;
  job.requests = engine_requests(model, request, tokens, "messages");
  auto form = std::make_unique<ChatForm>(AnswerHead{.id = new_identifier("chatcmpl-"),
                                                    .created = std::time(nullptr),
                                                    .model = name,
                                                    .prompt_tokens = std::ssize(tokens),
                                                    .include_usage = request.include_usage,
                                                    .logprobs = request.logprobs,
                                                    .tokenizer = &model.tokenizer});
  const AnswerDivision division{
      .reasoning = model.split_reasoning, .reasoning_opened = opens_reasoning(prompt), .tools = request.has_tools()};
  job.sink = std::make_shared<AnswerSink>(reply, std::move(form), division, job.requests.size(), request.stream);
  service.submit(std::move(job));
}

}  // namespace hone
