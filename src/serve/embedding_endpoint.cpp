// POST /v1/embeddings, in OpenAI's form.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/json_value.h"
#include "serve/answer_head.h"
#include "serve/embedding_job.h"
#include "serve/embedding_request.h"
#include "serve/endpoints.h"
#include "serve/request_error.h"

namespace hone {
namespace {

// The response to one request.
class EmbeddingAnswer : public EmbeddingSink {
 public:
  EmbeddingAnswer(std::shared_ptr<ServerReply> reply, EmbeddingRequest request, std::string model,
                  std::int64_t prompt_tokens)
      : reply_(std::move(reply)), request_(std::move(request)), model_(std::move(model)), tokens_(prompt_tokens) {}

  [[nodiscard]] bool wanted() const override { return !reply_->left(); }

  void add(GenerationProgress) override {
    std::string list;
    for (std::size_t i = 0; i < embeddings_.size(); ++i) {
      std::vector<float> embedding = std::move(embeddings_[i]);
      if (request_.dimensions) embedding = shortened(embedding, *request_.dimensions);
      list += text_of(i > 0 ? "," : "", R"({"object":"embedding","index":)", i, R"(,"embedding":)",
                      embedding_text(embedding, request_.base64), "}");
    }
    const Json usage{{"prompt_tokens", tokens_}, {"total_tokens", tokens_}};
    reply_->send({.status = 200,
                  .body = text_of(R"({"id":")", new_identifier("embd-"), R"(","object":"list","model":)",
                                  json_text(model_), R"(,"data":[)", list, R"(],"usage":)", json_text(usage), "}")});
  }

  void fail(int status, std::string_view message) override {
    reply_->send({.status = status, .body = error_body(message, {}, status)});
  }

 private:
  std::shared_ptr<ServerReply> reply_;
  EmbeddingRequest request_;
  std::string model_;
  std::int64_t tokens_;
};

// Returns the tokens of each input. Throws RequestError if one has none, too many, or one outside the vocabulary.
std::vector<std::vector<TokenId>> tokens_of_inputs(const ServedModel& model, const EmbeddingRequest& request) {
  std::vector<std::vector<TokenId>> inputs;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  if (request.truncate_prompt_tokens) most = *request.truncate_prompt_tokens;
  if (most < 0) most = model.max_model_len;
  for (std::size_t i = 0; i < request.inputs.size(); ++i) {
    const std::string param = request.inputs.size() > 1 ? text_of("input[", i, "]") : "input";
    const auto* text = std::get_if<std::string>(&request.inputs[i]);
    std::vector<TokenId> tokens = text != nullptr ? encoded(model, *text, request.add_special_tokens, param)
                                                  : std::get<std::vector<TokenId>>(request.inputs[i]);
    if (tokens.empty()) throw RequestError(param, "has no tokens");
    if (std::ssize(tokens) > most) tokens.erase(tokens.begin(), tokens.end() - most);
    if (std::ssize(tokens) > model.max_model_len)
      throw RequestError(param, text_of("has ", tokens.size(), " tokens; max_model_len is ", model.max_model_len),
                         "truncate_prompt_tokens -1 keeps the last ones");
    const TokenId largest = std::ranges::max(tokens);
    if (largest >= model.vocab_size)
      throw RequestError(param, text_of("has token ", largest, " outside the vocabulary of ", model.vocab_size));
    inputs.push_back(std::move(tokens));
  }
  return inputs;
}

void check_dimensions(const ServedEmbeddings& served, const EmbeddingRequest& request) {
  if (!request.dimensions) return;
  const std::int64_t given = *request.dimensions;
  if (given == served.size) return;
  if (!served.is_matryoshka)
    throw RequestError("dimensions", text_of("is ", given, ", but embeddings of this model have ", served.size),
                       "leave it out");
  const auto& allowed = served.dimensions;
  if (given > served.size || (!allowed.empty() && std::ranges::find(allowed, given) == allowed.end()))
    throw RequestError("dimensions", text_of("is ", given),
                       allowed.empty() ? text_of("at most ", served.size) : "the model's matryoshka_dimensions count");
}

}  // namespace

void answer_embeddings(const Service& service, const ServerRequest& http, const std::shared_ptr<ServerReply>& reply) {
  const ServedModel& model = service.model();
  if (!model.embeddings)
    throw RequestError({}, "this server computes no embeddings", "start it with --embeddings auto");
  EmbeddingRequest request = parse_embedding_request(http.body);
  std::string name = answering_name(model, request.model);
  if (adapter_named(model, request.model) != nullptr)
    throw RequestError("model", "names an adapter, and embeddings are those of the base model",
                       text_of("use ", model.names.front()));
  check_dimensions(*model.embeddings, request);
  std::vector<std::vector<TokenId>> inputs = tokens_of_inputs(model, request);
  std::int64_t tokens = 0;
  for (const auto& input : inputs) tokens += std::ssize(input);
  auto sink = std::make_shared<EmbeddingAnswer>(reply, std::move(request), std::move(name), tokens);
  service.submit(EmbeddingJob{.inputs = std::move(inputs), .sink = std::move(sink)});
}

}  // namespace hone
