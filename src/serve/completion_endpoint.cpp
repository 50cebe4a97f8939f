#include <iterator>

#include "serve/answer_sink.h"
#include "serve/completion_request.h"
#include "serve/endpoints.h"
#include "serve/text_form.h"

namespace hone {

void answer_completions(const Service& service, const ServerRequest& http, const std::shared_ptr<ServerReply>& reply) {
  constexpr std::int64_t kUsualMaxTokens = 16;  // OpenAI's
  const ServedModel& model = service.model();
  const CompletionRequest request = parse_completion_request(http.body, model.defaults);
  AnswerHead head{.id = new_identifier("cmpl-"),
                  .created = std::time(nullptr),
                  .model = answering_name(model, request.model),
                  .prompt_tokens = 0,
                  .include_usage = request.include_usage,
                  .logprobs = request.logprobs,
                  .tokenizer = &model.tokenizer};
  GenerationJob job;
  std::vector<std::string> begins;
  for (const auto& prompt : request.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    const std::vector<TokenId> tokens = text != nullptr ? encoded(model, *text, request.add_special_tokens, "prompt")
                                                        : std::get<std::vector<TokenId>>(prompt);
    std::vector<Request> requests = engine_requests(model, request, tokens, "prompt", kUsualMaxTokens);
    job.requests.insert(job.requests.end(), std::move_iterator(requests.begin()), std::move_iterator(requests.end()));
    head.prompt_tokens += std::ssize(tokens);
    if (!request.echo) continue;
    const std::string begin = text != nullptr ? *text : model.tokenizer.decode(tokens);
    begins.insert(begins.end(), static_cast<std::size_t>(request.n), begin);
  }
  auto form = std::make_unique<TextForm>(std::move(head), std::move(begins));
  job.sink =
      std::make_shared<AnswerSink>(reply, std::move(form), AnswerDivision{}, job.requests.size(), request.stream);
  service.submit(std::move(job));
}

}  // namespace hone
