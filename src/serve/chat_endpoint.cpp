#include "core/json_value.h"
#include "serve/answer_sink.h"
#include "serve/chat_form.h"
#include "serve/chat_request.h"
#include "serve/endpoints.h"
#include "serve/messages_form.h"
#include "serve/messages_request.h"
#include "serve/request_error.h"
#include "serve/responses_form.h"
#include "serve/responses_request.h"

namespace hone {
namespace {

// Returns true if the prompt ends inside of the reasoning.
bool opens_reasoning(std::string_view prompt) {
  const std::size_t end = prompt.find_last_not_of(" \t\r\n");
  return end != std::string_view::npos && prompt.substr(0, end + 1).ends_with("<think>");
}

// A request of any API for the next message of a conversation, as the engine takes it.
struct ChatJob {
  GenerationJob job;
  AnswerHead head;
  AnswerDivision division;
};

// Returns true if the prompt ends with reasoning that is over, as templates write it when thinking is off.
bool closes_reasoning(std::string_view prompt) {
  const std::size_t end = prompt.find_last_not_of(" \t\r\n");
  return end != std::string_view::npos && prompt.substr(0, end + 1).ends_with("</think>");
}

// Returns the reasoning that may come before the text that a grammar describes.
Reasoning reasoning_after(const ServedModel& model, std::string_view prompt) {
  if (opens_reasoning(prompt)) return Reasoning::kOpened;
  return model.split_reasoning && !closes_reasoning(prompt) ? Reasoning::kPossible : Reasoning::kNone;
}

// Adds the grammar of the call that a request asks for.
ChatRequest with_demanded_call(const ServedModel& model, ChatRequest request) {
  if (!request.demanded_call) return request;
  if (request.grammar)
    throw RequestError(request.demanded_call->param, text_of("is given in addition to ", request.grammar->param),
                       "leave one of them out");
  request.grammar = grammar_of_calls(request.variables->value("tools", Json::array()), *request.demanded_call,
                                     model.chat_template.source());
  return request;
}

ChatJob chat_job(const ServedModel& model, const ChatRequest& given, std::string_view id_prefix) {
  const ChatRequest request = with_demanded_call(model, given);
  ChatJob chat;
  const std::string name = answering_name(model, request.model);
  const std::string prompt = rendered_prompt(model, *request.messages, *request.variables);
  const std::vector<TokenId> tokens = encoded(model, prompt, false, "messages");
  chat.job.adapter = adapter_named(model, request.model);
  chat.job.requests = engine_requests(model, request, tokens, "messages");
  for (Request& one : chat.job.requests) one.constraint.reasoning = reasoning_after(model, prompt);
  chat.head = {.id = new_identifier(id_prefix),
               .created = std::time(nullptr),
               .model = name,
               .prompt_tokens = std::ssize(tokens),
               .include_usage = request.include_usage,
               .logprobs = request.logprobs,
               .tokenizer = &model.tokenizer,
               .token_ids = request.token_ids,
               .tokens_as_ids = request.tokens_as_ids,
               .prompt_logprobs = request.sampling.prompt_logprobs.has_value(),
               .prompts = {},
               .choices_per_prompt = static_cast<std::size_t>(request.n)};
  if (chat.head.token_ids || chat.head.prompt_logprobs) chat.head.prompts = {tokens};
  chat.division = {
      .reasoning = model.split_reasoning, .reasoning_opened = opens_reasoning(prompt), .tools = request.has_tools()};
  return chat;
}

void submit_chat(const Service& service, ChatJob chat, std::unique_ptr<AnswerForm> form, bool stream,
                 const std::shared_ptr<ServerReply>& reply) {
  chat.job.sink = std::make_shared<AnswerSink>(reply, std::move(form), chat.division, chat.job.requests.size(), stream);
  service.submit(std::move(chat.job));
}

}  // namespace

void answer_chat(const Service& service, const ServerRequest& http, const std::shared_ptr<ServerReply>& reply) {
  const ChatRequest request = parse_chat_request(http.body, service.model().defaults);
  ChatJob chat = chat_job(service.model(), request, "chatcmpl-");
  auto form = std::make_unique<ChatForm>(chat.head);
  submit_chat(service, std::move(chat), std::move(form), request.stream, reply);
}

void answer_messages(const Service& service, const ServerRequest& http, const std::shared_ptr<ServerReply>& reply) {
  const ChatRequest request = parse_messages_request(http.body, service.model().defaults);
  ChatJob chat = chat_job(service.model(), request, "msg_");
  auto form = std::make_unique<MessagesForm>(chat.head, chat.job.requests[0].sampling);
  submit_chat(service, std::move(chat), std::move(form), request.stream, reply);
}

void answer_responses(const Service& service, const ServerRequest& http, const std::shared_ptr<ServerReply>& reply) {
  const ResponsesRequest request = parse_responses_request(http.body, service.model().defaults);
  ChatJob chat = chat_job(service.model(), request, "resp_");
  auto form = std::make_unique<ResponsesForm>(chat.head, request.echoed);
  submit_chat(service, std::move(chat), std::move(form), request.stream, reply);
}

}  // namespace hone
