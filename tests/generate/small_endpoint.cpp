#include "generate/small_endpoint.h"

#include "core/json_value.h"

namespace hone::test {
namespace {

std::string error_body(const std::string& message) { return Json{{"error", {{"message", message}}}}.dump(); }

// Decrements `count` and returns true, or returns false if it is 0.
bool take_one(std::atomic<int>& count) {
  if (count-- > 0) return true;
  ++count;
  return false;
}

}  // namespace

SmallEndpoint::~SmallEndpoint() {
  const std::scoped_lock lock(mutex_);
  is_over_ = true;
  asked_.notify_all();
}

std::vector<Json> SmallEndpoint::requests() {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

std::string SmallEndpoint::completion_of(const Json& request) const {
  const std::string content = request["model"].get<std::string>() + " " + request["seed"].dump() + ": " +
                              request["messages"].back()["content"].get<std::string>();
  Json choice = {{"index", 0}, {"finish_reason", "stop"}};
  choice["message"] = message.empty() ? Json{{"role", "assistant"}, {"content", content}} : Json::parse(message);
  Json body = {{"choices", Json::array({choice})}};
  if (counts_tokens) body["usage"] = {{"completion_tokens", 7}};
  return body.dump();
}

std::string SmallEndpoint::answer(const LoopbackRequest& received) {
  if (received.line != "POST /v1/chat/completions") {
    return http_answer("404 Not Found", error_body("no such path"));
  }
  if (!needed_key.empty() && received.header("Authorization") != "Bearer " + needed_key) {
    return http_answer("401 Unauthorized", error_body("Incorrect API key provided"));
  }
  const Json request = Json::parse(received.body);
  {
    std::unique_lock lock(mutex_);
    requests_.push_back(request);
    asked_.notify_all();
    const std::size_t wanted = take_one(slow) ? requests_.size() + 1 : static_cast<std::size_t>(gathers);
    asked_.wait(lock, [&] { return requests_.size() >= wanted || is_over_; });
    if (stops_after >= 0 && static_cast<int>(requests_.size()) > stops_after) {
      return http_answer("500 Internal Server Error", "out of order");
    }
  }
  if (take_one(busy)) {
    return http_answer("429 Too Many Requests", error_body("slow down"),
                       retry_after.empty() ? "" : "Retry-After: " + retry_after + "\r\n");
  }
  if (take_one(nonsense)) return http_answer("200 OK", "<html>Bad gateway</html>");
  if (request["messages"].dump().find("forbidden") != std::string::npos) {
    return http_answer("400 Bad Request", error_body("this prompt is forbidden"));
  }
  const std::string body = completion_of(request);
  if (take_one(cut)) {
    std::string answer = http_answer("200 OK", body);
    answer.resize(answer.size() - body.size() / 2);
    return answer;
  }
  return http_answer("200 OK", body, closes ? "Connection: close\r\n" : "");
}

}  // namespace hone::test
