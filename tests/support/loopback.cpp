#include "support/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace hone::test {
namespace {

// Reads a request. Returns nothing if the connection ends before the request does, or is to be closed.
std::optional<LoopbackRequest> receive(int connection, const std::function<std::int64_t(const LoopbackRequest&)>& cut) {
  std::string text;
  std::string buffer(1 << 16, '\0');
  std::optional<LoopbackRequest> request;
  std::size_t head = 0;    // bytes before the body
  std::size_t length = 0;  // of the body
  std::int64_t most = -1;  // bytes of the body that are read
  for (;;) {
    const std::size_t end = request ? head - 4 : text.find("\r\n\r\n");
    if (!request && end != std::string::npos) {
      request = {.line = text.substr(0, text.find(" HTTP/")), .headers = text.substr(0, end + 2), .body = {}};
      head = end + 4;
      const std::string given = request->header("Content-Length");
      length = given.empty() ? 0 : std::stoul(given);
      if (cut) most = cut(*request);
    }
    if (request && most >= 0 && text.size() >= head + static_cast<std::size_t>(most)) return std::nullopt;
    if (request && text.size() >= head + length) {
      request->body = text.substr(head);
      return request;
    }
    const ssize_t size = ::recv(connection, buffer.data(), buffer.size(), 0);
    if (size <= 0) return std::nullopt;
    text.append(buffer, 0, static_cast<std::size_t>(size));
  }
}

void send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

// Returns true if another request may follow on the connection.
bool stays_open(const LoopbackRequest& request, const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  if (end == std::string::npos) return false;
  const LoopbackRequest answered{.line = {}, .headers = answer.substr(0, end + 2), .body = {}};
  if (answered.header("Connection") == "close") return false;
  const std::string length = answered.header("Content-Length");
  const bool is_whole = !length.empty() && answer.size() - (end + 4) == std::stoul(length);
  return is_whole || request.line.starts_with("HEAD ");
}

}  // namespace

std::string LoopbackRequest::header(const std::string& name) const {
  const auto is_same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  const std::string wanted = "\r\n" + name + ": ";
  const auto found = std::search(headers.begin(), headers.end(), wanted.begin(), wanted.end(), is_same);
  if (found == headers.end()) return "";
  const auto at = static_cast<std::size_t>(found - headers.begin());
  const std::size_t begin = at + name.size() + 4;
  return headers.substr(begin, headers.find("\r\n", begin) - begin);
}

std::string http_answer(const std::string& status, const std::string& body, const std::string& headers) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
}

Loopback::Loopback(std::function<std::string(const LoopbackRequest&)> answer,
                   std::function<std::int64_t(const LoopbackRequest&)> cut)
    : answer_(std::move(answer)), cut_(std::move(cut)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
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

Loopback::~Loopback() {
  stops_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  thread_.join();
  {
    const std::scoped_lock lock(mutex_);
    for (const int connection : open_connections_) ::shutdown(connection, SHUT_RDWR);
  }
  answering_.clear();
  ::close(listener_);
}

void Loopback::serve() {
  while (!stops_) {
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    ++connections_;
    {
      const std::scoped_lock lock(mutex_);
      open_connections_.insert(connection);
    }
    answering_.emplace_back([this, connection] {
      while (serve(connection)) continue;
      const std::scoped_lock lock(mutex_);
      open_connections_.erase(connection);
      ::close(connection);
    });
  }
}

// Answers a request. Returns true if another one may follow.
bool Loopback::serve(int connection) {
  const std::optional<LoopbackRequest> request = receive(connection, cut_);
  if (!request) return false;
  const int now = ++open_;
  for (int most = most_; now > most && !most_.compare_exchange_weak(most, now);) {
  }
  const std::string bytes = answer_(*request);
  --open_;  // before the answer, after which another request may come
  send_all(connection, bytes);
  return stays_open(*request, bytes);
}

}  // namespace hone::test
