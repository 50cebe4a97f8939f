#include "cli/chat/local_answerer.h"

#include <algorithm>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/random.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::int64_t kLongestConversation = 8192;

}  // namespace

LocalAnswerer::LocalAnswerer(const ChatOptions& options, LoadedModel& loaded, EngineGroup* group)
    : loaded_(loaded),
      group_(group),
      template_(chat_template_of(loaded.tokenizer, options.chat_template)),
      stop_token_ids_(stop_token_ids(loaded.generation_config, *loaded.model, loaded.tokenizer)) {
  make_engine(options);
}

ChatAnswer LocalAnswerer::answer(const ChatTurn& turn, const std::function<void(AnswerPiece)>& show) {
  Request request;
  const RenderedChat chat = template_.render(turn.messages, true, template_variables(loaded_.tokenizer));
  request.prompt = loaded_.tokenizer.encode(chat.text);
  request.sampling = turn.options.params(turn.options.max_tokens, stop_token_ids_);
  request.sampling.seed = RandomStream(static_cast<std::uint64_t>(turn.options.seed), "chat").bits(turn.index);
  const std::int64_t prompt_tokens = std::ssize(request.prompt);
  check_room(turn.messages, prompt_tokens);
  const RequestId id = engine_->add(std::move(request));
  try {
    engine_->run([&](const Engine::Update& update) { show({.text = update.text}); });
  } catch (const Interrupted&) {  // keep what was generated so far as the answer
  }
  const Completion completion = engine_->take(id);
  ChatAnswer answer{.text = completion.text, .cut = {}};
  if (completion.finish_reason == FinishReason::kLength) answer.cut = cut_text(prompt_tokens, completion);
  return answer;
}

void LocalAnswerer::check_room(const Json& messages, std::int64_t prompt_tokens) const {
  if (prompt_tokens < max_model_len_) return;
  const auto asked = std::ranges::count_if(messages, [](const Json& message) { return message["role"] == "user"; });
  throw Error(asked > 1 ? "the conversation" : "the question",
              text_of("has ", format_count(prompt_tokens), " tokens, but only ", format_count(max_model_len_),
                      " fit, including the answer"),
              (asked > 1 ? "/clear forgets the conversation" : "ask something shorter") + max_model_len_hint());
}

// Suggests a larger --max_model_len if the model has more positions than the conversation may use.
std::string LocalAnswerer::max_model_len_hint() const {
  const std::int64_t positions = loaded_.model->shape().max_position_embeddings;
  if (max_model_len_ >= positions) return "";
  return text_of("; hone chat --max_model_len allows up to ", positions);
}

std::string LocalAnswerer::cut_text(std::int64_t prompt_tokens, const Completion& completion) const {
  const std::int64_t tokens = std::ssize(completion.tokens);
  if (prompt_tokens + tokens < max_model_len_) {
    return text_of("cut at ", format_count(tokens), " tokens; /set max_tokens N or --max_tokens N allows more");
  }
  return text_of("cut, the context is full: ", format_count(prompt_tokens + tokens), " of ",
                 format_count(max_model_len_), " tokens; /clear forgets the conversation", max_model_len_hint());
}

void LocalAnswerer::options_changed(const ChatOptions& options) {
  // An engine whose requests do not adjust logits does not allocate the memory for it.
  if (!adjusts_logits_ && options.adjusts_logits()) make_engine(options);
}

void LocalAnswerer::make_engine(const ChatOptions& options) {
  max_model_len_ = model_len(loaded_.model->shape(), options.max_model_len, kLongestConversation);
  adjusts_logits_ = options.adjusts_logits();
  engine_.reset();  // release the old engine's memory before allocating the new one
  engine_ = std::make_unique<Engine>(*loaded_.model, loaded_.tokenizer, loaded_.weights,
                                     std::make_shared<Arena>(loaded_.weights.device()),
                                     engine_options({.max_model_len = max_model_len_,
                                                     .max_num_seqs = 1,
                                                     .adjust_logits = adjusts_logits_,
                                                     .cache = options.cache}),
                                     group_);
}

}  // namespace hone
