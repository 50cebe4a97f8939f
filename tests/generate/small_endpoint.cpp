#include "generate/small_endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string_view>

#include "core/json_value.h"

namespace hone::test {
namespace {

void send_whole(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void send_answer(int connection, const std::string& status, const std::string& body, const std::string& headers = "") {
  send_whole(connection, "HTTP/1.1 " + status + "\r\nConnection: close\r\nContent-Length: " +
                             std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body);
}

std::string error_body(const std::string& message) { return Json{{"error", {{"message", message}}}}.dump(); }

// Head and body; empty where the connection ends before.
std::pair<std::string, std::string> receive(int connection) {
  std::string text;
  std::string buffer(1 << 16, '\0');
  for (;;) {
    const std::size_t end = text.find("\r\n\r\n");
    if (end != std::string::npos) {
      const std::size_t at = text.find("Content-Length: ");
      const std::size_t size = at < end ? std::stoul(text.substr(at + 16)) : 0;
      if (text.size() >= end + 4 + size) return {text.substr(0, end + 2), text.substr(end + 4, size)};
    }
    const ssize_t size = ::recv(connection, buffer.data(), buffer.size(), 0);
    if (size <= 0) return {};
    text.append(buffer, 0, static_cast<std::size_t>(size));
  }
}

// Whether one of `count` was left.
bool take_one(std::atomic<int>& count) {
  if (count-- > 0) return true;
  ++count;
  return false;
}

}  // namespace

SmallEndpoint::SmallEndpoint() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 128) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("cannot listen on loopback");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

SmallEndpoint::~SmallEndpoint() {
  stops_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  thread_.join();
  answering_.clear();
  ::close(listener_);
}

std::vector<Json> SmallEndpoint::requests() {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

void SmallEndpoint::serve() {
  while (!stops_) {
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    answering_.emplace_back([this, connection] {
      const int now = ++open_;
      for (int most = most_; now > most && !most_.compare_exchange_weak(most, now);) {
      }
      answer(connection);
      --open_;
      ::close(connection);
    });
  }
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

void SmallEndpoint::answer(int connection) {
  const auto [head, text] = receive(connection);
  if (head.empty()) return;
  if (!head.starts_with("POST /v1/chat/completions ")) {
    return send_answer(connection, "404 Not Found", error_body("no such path"));
  }
  if (!needed_key.empty() && head.find("Authorization: Bearer " + needed_key + "\r\n") == std::string::npos) {
    return send_answer(connection, "401 Unauthorized", error_body("Incorrect API key provided"));
  }
  const Json request = Json::parse(text);
  {
    const std::scoped_lock lock(mutex_);
    requests_.push_back(request);
    if (stops_after >= 0 && static_cast<int>(requests_.size()) > stops_after) {
      return send_answer(connection, "500 Internal Server Error", "out of order");
    }
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(pause_milliseconds));
  if (take_one(busy)) {
    return send_answer(connection, "429 Too Many Requests", error_body("slow down"),
                       retry_after.empty() ? "" : "Retry-After: " + retry_after + "\r\n");
  }
  if (take_one(nonsense)) return send_answer(connection, "200 OK", "<html>Bad gateway</html>");
  if (take_one(slow)) std::this_thread::sleep_for(std::chrono::seconds(2));
  if (request["messages"].dump().find("forbidden") != std::string::npos) {
    return send_answer(connection, "400 Bad Request", error_body("this prompt is forbidden"));
  }
  const std::string body = completion_of(request);
  if (take_one(cut)) {
    return send_whole(connection, "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                                      body.substr(0, body.size() / 2));
  }
  send_answer(connection, "200 OK", body);
}

}  // namespace hone::test
