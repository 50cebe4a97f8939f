// Tests of requests whose server does not answer.
#include "hub/http.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace hone::test {
namespace {

// Listens, but accepts no further connection.
class FullListener {
 public:
  FullListener() : sockets_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const place = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(sockets_[0], place, size), 0);
    EXPECT_EQ(::listen(sockets_[0], 0), 0);
    EXPECT_EQ(::getsockname(sockets_[0], place, &size), 0);
    port_ = ntohs(address.sin_port);
    for (int i = 0; i < 4; ++i) {
      sockets_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)::connect(sockets_.back(), place, size);
    }
  }
  FullListener(const FullListener&) = delete;
  FullListener& operator=(const FullListener&) = delete;
  ~FullListener() {
    for (const int socket : sockets_) ::close(socket);
  }
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  std::vector<int> sockets_;
  int port_ = 0;
};

// Captures standard error while it is written; `on_text` is called with everything captured so far.
class StandardError {
 public:
  explicit StandardError(std::function<void(const std::string&)> on_text) : before_(::dup(STDERR_FILENO)) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
    reader_ = std::thread([this, from = ends[0], on_text = std::move(on_text)] {
      std::array<char, 4096> buffer{};
      for (ssize_t size = 0; (size = ::read(from, buffer.data(), buffer.size())) > 0;) {
        text_.append(buffer.data(), static_cast<std::size_t>(size));
        on_text(text_);
      }
      ::close(from);
    });
  }
  // Restores standard error and returns the captured text.
  std::string end() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    reader_.join();
    return text_;
  }

 private:
  int before_;
  std::string text_;
  std::thread reader_;
};

TEST(Http, AServerThatTakesNoConnectionIsNotWaitedForInSilence) {
  const FullListener listener;
  std::atomic<bool> cancelled = false;
  StandardError written([&](const std::string& text) { cancelled = text.find("no connection after") != text.npos; });
  const HttpAnswer answer =
      http_post({.url = listener.url() + "/v1", .token = {}, .body = "{}", .cancelled = &cancelled});
  EXPECT_THAT(written.end(),
              testing::HasSubstr(listener.url() + ": no connection after 3 s; waiting for it up to 15 s"));
  EXPECT_NE(answer.failure, "");
}

}  // namespace
}  // namespace hone::test
