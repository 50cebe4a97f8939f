// A server of HTTP for tests.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "http/server.h"

namespace hone::test {

// A server that answers with the method, the target and the body. Special targets: /wait keeps the reply, /stream
// sends three events, /drop answers nothing.
class EchoServer {
 public:
  explicit EchoServer(HttpOptions options = {}) : server_(completed(std::move(options)), handler()) {}

  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  [[nodiscard]] HttpServer& server() { return server_; }
  // Waits for the reply of a request for /wait.
  std::shared_ptr<ServerReply> waiting() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ != nullptr; });
    return std::exchange(waiting_, nullptr);
  }
  // Waits for the end of `count` requests and returns all that have ended.
  std::vector<HttpAccess> log(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return log_.size() >= count; });
    return log_;
  }

 private:
  HttpOptions completed(HttpOptions options) {
    options.error_body = [](int status, std::string_view message) { return text_of(status, ": ", message); };
    options.on_access = [this](const HttpAccess& access) {
      const std::lock_guard lock(mutex_);
      log_.push_back(access);
      changed_.notify_all();
    };
    return options;
  }
  HttpServer::Handler handler() {
    return [this](const ServerRequest& request, std::shared_ptr<ServerReply> reply) {
      if (request.path() == "/wait") {
        const std::lock_guard lock(mutex_);
        waiting_ = std::move(reply);
        changed_.notify_all();
      } else if (request.path() == "/stream") {
        reply->begin_events();
        for (const char* event : {"one ", "two ", "three"}) reply->write(event);
        reply->end();
      } else if (request.path() != "/drop") {
        reply->send({.body = request.method + " " + request.target + " " + request.body});
      }
    };
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<ServerReply> waiting_;
  std::vector<HttpAccess> log_;
  HttpServer server_;
};

}  // namespace hone::test
