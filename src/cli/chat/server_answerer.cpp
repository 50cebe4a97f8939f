#include "cli/chat/server_answerer.h"

#include <cstdlib>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "endpoint/client.h"
#include "endpoint/event_stream.h"
#include "hub/http.h"

namespace hone {
namespace {

constexpr std::chrono::hours kLongestReply{24};  // Ctrl+C ends an answer that does not come
constexpr std::int64_t kMostListBytes = 16 << 20;

std::string key_of(const ChatOptions& options) {
  if (!options.api_key.empty()) return options.api_key;
  for (const char* name : {"HONE_API_KEY", "OPENAI_API_KEY"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  return {};
}

// Throws Error if an answer is not one with status 200.
void check_answer(const std::string& url, const HttpAnswer& answer) {
  if (answer.status == 0) throw Error(url, text_of("gives no answer: ", answer.failure), "is the server running?");
  if (answer.status != 200) {
    throw Error(url, text_of("answers ", answer.status, ": ", error_message(answer.body)),
                answer.status == 401 || answer.status == 403 ? "set --api_key or HONE_API_KEY" : "");
  }
  if (!answer.failure.empty()) throw Error(url, text_of("the answer has ended early: ", answer.failure));
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Collects a streamed answer, or one that a server sends whole although a stream was requested.
class AnswerReader {
 public:
  explicit AnswerReader(const std::function<void(AnswerPiece)>& show) : show_(show) {}

  void take(const HttpAnswer& answer, std::string_view piece) {
    throw_if_interrupted();
    const auto type = answer.headers.find("content-type");
    if (type == answer.headers.end() || type->second.find("event-stream") == std::string::npos) {
      whole_ += piece;
      return;
    }
    for (const std::string& data : stream_.add(piece)) read_event(data);
  }

  // Returns the answer once the request is over. Throws Error if it is not complete.
  ChatAnswer finish() {
    if (!whole_.empty()) read_event(whole_);
    if (!ended_) throw Error("", "the answer has ended early");
    return part();
  }
  // Returns what there is by now.
  [[nodiscard]] ChatAnswer part() const { return {.text = text_, .cut = cut_}; }

 private:
  void read_event(const std::string& data) {
    if (data == "[DONE]") {
      ended_ = true;
      return;
    }
    const Json event = parse_json(data, "an event of the answer");
    if (!event.is_object()) throw Error("", "an event of the answer is no object");
    if (event.contains("error")) throw Error("", text_of("the server reports: ", error_message(data)));
    const auto choices = event.find("choices");
    if (choices == event.end() || !choices->is_array() || choices->empty()) return;
    const Json& choice = choices->front();
    if (!choice.is_object()) return;
    for (const char* key : {"delta", "message"})
      if (const auto part = choice.find(key); part != choice.end() && part->is_object()) read_part(*part);
    const std::string reason = text_at(choice, "finish_reason");
    if (reason.empty()) return;
    ended_ = true;
    if (reason == "length") cut_ = "cut by the server; /set max_tokens N or --max_tokens N may allow more";
    if (reason == "content_filter") cut_ = "cut by the server's content filter";
  }

  void read_part(const Json& part) {
    // reasoning in newer servers, reasoning_content in older ones; some send both.
    std::string thought = text_at(part, "reasoning");
    if (thought.empty()) thought = text_at(part, "reasoning_content");
    if (!thought.empty()) show_({.text = thought, .is_thought = true});
    const std::string content = text_at(part, "content");
    text_ += content;
    if (!content.empty()) show_({.text = content});
  }

  const std::function<void(AnswerPiece)>& show_;
  EventStream stream_;
  std::string whole_;
  std::string text_;
  std::string cut_;
  bool ended_ = false;
};

}  // namespace

ServerAnswerer::ServerAnswerer(const ChatOptions& options)
    : url_(api_url(options.server, "server")), key_(key_of(options)), model_(options.model_name_or_path) {
  if (!model_.empty()) return;
  const std::string url = url_ + "/models";
  const HttpAnswer answer = http_get({.url = url, .token = key_, .most = kMostListBytes, .take = {}});
  check_answer(url, answer);
  try {
    model_ = parse_json(answer.body, "answer").at("data").at(0).at("id").get<std::string>();
  } catch (const std::exception&) {
    throw Error(url, "lists no model", "name one: hone chat MODEL --server URL");
  }
}

std::string ServerAnswerer::body_of(const ChatTurn& turn) const {
  Json body{{"model", model_}, {"messages", turn.messages}, {"stream", true}};
  const ChatOptions& options = turn.options;
  const auto add = [&](const char* key, const auto& value) {
    if (turn.set_keys.contains(key)) body[key] = value;
  };
  add("temperature", options.temperature);
  add("top_p", options.top_p);
  add("top_k", options.top_k);
  add("min_p", options.min_p);
  add("repetition_penalty", options.repetition_penalty);
  add("frequency_penalty", options.frequency_penalty);
  add("presence_penalty", options.presence_penalty);
  add("allowed_token_ids", options.allowed_token_ids);
  add("max_tokens", options.max_tokens);
  add("seed", options.seed + static_cast<std::int64_t>(turn.index));
  if (turn.set_keys.contains("logit_bias")) {
    body["logit_bias"] = Json::object();
    for (const auto& [token, bias] : options.params(1, {}).logit_bias) body["logit_bias"][std::to_string(token)] = bias;
  }
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ChatAnswer ServerAnswerer::answer(const ChatTurn& turn, const std::function<void(AnswerPiece)>& show) {
  const std::string url = url_ + "/chat/completions";
  AnswerReader reader(show);
  try {
    const HttpAnswer answer =
        http_post({.url = url,
                   .token = key_,
                   .body = body_of(turn),
                   .timeout = kLongestReply,
                   .take = [&](const HttpAnswer& head, std::string_view piece) { reader.take(head, piece); }});
    check_answer(url, answer);
    return reader.finish();
  } catch (const Interrupted&) {
    return reader.part();
  }
}

}  // namespace hone
