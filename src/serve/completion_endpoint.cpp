#include <ctime>
#include <iterator>
#include <utility>

#include "core/json_value.h"
#include "serve/answer_sink.h"
#include "serve/chat_request.h"
#include "serve/completion_request.h"
#include "serve/endpoints.h"
#include "serve/request_error.h"
#include "serve/text_form.h"

namespace hone {
namespace {

// Gives each completion its own seed if the request states them.
void set_seeds(const CompletionRequest& request, GenerationJob& job) {
  for (std::size_t i = 0; i < request.seeds.size(); ++i) job.requests[i].sampling.seed = request.seeds[i];
}

std::vector<TokenId> tokens_of(const ServedModel& model, const CompletionRequest& request, std::size_t prompt) {
  const auto* text = std::get_if<std::string>(&request.prompts[prompt]);
  return text != nullptr ? encoded(model, *text, request.add_special_tokens, "prompt")
                         : std::get<std::vector<TokenId>>(request.prompts[prompt]);
}

// The answer of TRL's /generate.
class GenerateForm : public AnswerForm {
 public:
  GenerateForm(std::vector<std::vector<TokenId>> prompts, bool logprobs)
      : prompts_(std::move(prompts)), logprobs_(logprobs) {}

  [[nodiscard]] std::string whole(const std::vector<AnswerPart>& choices) const override {
    Json ids = Json::array();
    Json all_logps = Json::array();
    Json logp_ids = Json::array();
    for (const AnswerPart& choice : choices) {
      ids.push_back(choice.tokens);
      Json logps = Json::array();
      Json listed = Json::array();
      for (std::size_t i = 0; i < choice.tokens.size(); ++i) {
        logps.push_back(Json::array({finite_logp(choice.logps[i])}));
        listed.push_back(Json::array({choice.tokens[i]}));
      }
      all_logps.push_back(std::move(logps));
      logp_ids.push_back(std::move(listed));
    }
    return json_text({{"prompt_ids", prompts_},
                      {"completion_ids", std::move(ids)},
                      {"logprobs", logprobs_ ? std::move(all_logps) : Json()},
                      {"logprob_token_ids", logprobs_ ? std::move(logp_ids) : Json()}});
  }
  [[nodiscard]] std::string part(std::size_t, bool, const AnswerPart&) override { return {}; }
  [[nodiscard]] std::string end(const std::vector<AnswerPart>&) override { return {}; }

 private:
  std::vector<std::vector<TokenId>> prompts_;
  bool logprobs_;
};

// Turns the body of TRL's /generate into one of /v1/completions.
Json completion_body(Json body) {
  for (const char* key : {"guided_decoding_regex", "structured_outputs_regex"}) {
    if (const Json regex = body.value(key, Json()); !regex.is_null()) body["guided_regex"] = regex;
    body.erase(key);
  }
  for (const char* key : {"images", "truncate_prompt_tokens"}) {
    if (const Json& value = RequestParameters(body).value(key); !value.is_null())
      throw RequestError(key, "is not supported", "leave it out");
    body.erase(key);
  }
  if (!body.contains("prompts")) throw RequestError("prompts", "is missing");
  if (body.value("stream", Json(false)) != false) throw RequestError("stream", "is not supported by /generate");
  body["prompt"] = std::exchange(body["prompts"], Json());
  body.erase("prompts");
  const Json more = std::exchange(body["generation_kwargs"], Json());
  body.erase("generation_kwargs");
  if (more.is_null()) return body;
  if (!more.is_object()) RequestParameters::refuse("generation_kwargs", more, "an object");
  for (const char* key : {"prompt", "stream"}) {
    if (more.contains(key))
      throw RequestError(text_of("generation_kwargs.", key), "is no parameter of sampling", "leave it out");
  }
  body.update(more);
  return body;
}

// Turns the body of TRL's /chat into one of /generate: its conversations become tokens.
Json generate_body(const ServedModel& model, Json body) {
  const Json conversations = std::exchange(body["messages"], Json());
  if (!conversations.is_array() || conversations.empty())
    RequestParameters::refuse("messages", conversations, "an array of conversations");
  Json prompts = Json::array();
  for (const Json& conversation : conversations) {
    Json one{{"messages", conversation}};
    for (const char* key : {"chat_template_kwargs", "tools"})
      if (const Json value = body.value(key, Json()); !value.is_null()) one[key] = value;
    const ChatRequest chat = parse_chat_request(json_text(one), SamplingParams());
    const std::string prompt = rendered_prompt(model, *chat.messages, *chat.variables);
    prompts.push_back(encoded(model, prompt, false, "messages"));
  }
  for (const char* key : {"messages", "chat_template_kwargs", "tools"}) body.erase(key);
  body["prompts"] = std::move(prompts);
  return body;
}

void generate(const Service& service, Json given, const std::shared_ptr<ServerReply>& reply) {
  const ServedModel& model = service.model();
  const Json body = completion_body(std::move(given));
  const std::int64_t most =
      body.contains("logprobs") && body["logprobs"].is_number_integer() ? body["logprobs"].get<std::int64_t>() : 0;
  if (most > 0)
    throw RequestError("logprobs", text_of("is ", most), "only those of the sampled tokens are listed: 0 or null");
  const CompletionRequest request = parse_completion_request(json_text(body), SamplingParams());
  GenerationJob job;
  job.adapter = adapter_named(model, request.model);
  std::vector<std::vector<TokenId>> prompts;
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    prompts.push_back(tokens_of(model, request, i));
    std::vector<Request> requests = engine_requests(model, request, prompts.back(), "prompts", 16);
    job.requests.insert(job.requests.end(), std::move_iterator(requests.begin()), std::move_iterator(requests.end()));
  }
  set_seeds(request, job);
  auto form = std::make_unique<GenerateForm>(std::move(prompts), request.logprobs);
  job.sink = std::make_shared<AnswerSink>(reply, std::move(form), AnswerDivision{}, job.requests.size(), false);
  service.submit(std::move(job));
}

}  // namespace

void answer_generate(const Service& service, const ServerRequest& http, const std::shared_ptr<ServerReply>& reply) {
  generate(service, parse_body(http.body), reply);
}

void answer_trl_chat(const Service& service, const ServerRequest& http, const std::shared_ptr<ServerReply>& reply) {
  generate(service, generate_body(service.model(), parse_body(http.body)), reply);
}

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
                  .tokenizer = &model.tokenizer,
                  .token_ids = request.token_ids,
                  .tokens_as_ids = request.tokens_as_ids,
                  .prompt_logprobs = request.sampling.prompt_logprobs && !request.echoes_logprobs,
                  .choices_per_prompt = static_cast<std::size_t>(request.n)};
  GenerationJob job;
  job.adapter = adapter_named(model, request.model);
  std::vector<EchoedPrompt> begins;
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    const auto* text = std::get_if<std::string>(&request.prompts[i]);
    const std::vector<TokenId> tokens = tokens_of(model, request, i);
    std::vector<Request> requests = engine_requests(model, request, tokens, "prompt", kUsualMaxTokens);
    job.requests.insert(job.requests.end(), std::move_iterator(requests.begin()), std::move_iterator(requests.end()));
    head.prompt_tokens += std::ssize(tokens);
    if (request.token_ids || head.prompt_logprobs) head.prompts.push_back(tokens);
    if (!request.echo) continue;
    EchoedPrompt begin{text != nullptr ? *text : model.tokenizer.decode(tokens)};
    if (request.logprobs) begin.tokens = tokens;
    begins.insert(begins.end(), static_cast<std::size_t>(request.n), begin);
  }
  set_seeds(request, job);
  auto form = std::make_unique<TextForm>(std::move(head), std::move(begins));
  job.sink =
      std::make_shared<AnswerSink>(reply, std::move(form), AnswerDivision{}, job.requests.size(), request.stream);
  service.submit(std::move(job));
}

}  // namespace hone
