// Requests passed on to another server and its answers back, over loopback.
#include "http/relay.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "core/error.h"
#include "http/echo_server.h"
#include "support/raw_client.h"

namespace hone::test {
namespace {

std::string error_text(int status, std::string_view message) { return text_of(status, ": ", message); }

// A server that passes all requests on.
class Front {
 public:
  explicit Front(std::uint16_t port, HttpOptions options = {})
      : relay_(error_text), server_(completed(std::move(options)), [this, port](ServerRequest request, auto reply) {
          relay_.forward(std::move(request), std::move(reply), port, [this] {
            const std::lock_guard lock(mutex_);
            ++ended_;
            changed_.notify_all();
          });
        }) {}

  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  void wait_for_ends(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= count; });
  }

 private:
  static HttpOptions completed(HttpOptions options) {
    options.error_body = error_text;
    return options;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  HttpRelay relay_;
  HttpServer server_;
};

// A server that begins a stream of events for each request, which the test continues.
class KeptStream {
 public:
  KeptStream()
      : server_(options(), [this](const ServerRequest&, std::shared_ptr<ServerReply> reply) {
          reply->begin_events();
          const std::lock_guard lock(mutex_);
          reply_ = std::move(reply);
          changed_.notify_all();
        }) {}

  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  // Waits for a request and returns its reply.
  [[nodiscard]] std::shared_ptr<ServerReply> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reply_ != nullptr; });
    return std::exchange(reply_, nullptr);
  }

 private:
  static HttpOptions options() {
    HttpOptions options;
    options.error_body = error_text;
    return options;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<ServerReply> reply_;
  HttpServer server_;
};

TEST(HttpRelay, PassesRequestsOnAndAnswersBack) {
  EchoServer echo;
  Front front(echo.port());
  EXPECT_EQ(fetch(front.port(), "GET", "/a?b=c").body, "GET /a?b=c ");
  EXPECT_EQ(fetch(front.port(), "POST", "/d", "body").body, "POST /d body");
  EXPECT_EQ(fetch(front.port(), "BREW", "/pot").body, "BREW /pot ");
  const std::string large(3 << 20, 'x');
  EXPECT_EQ(fetch(front.port(), "POST", "/e", large).body, "POST /e " + large);
  RawClient client(front.port());
  client.send(http_request("HEAD", "/f") + http_request("GET", "/g"));
  ASSERT_TRUE(client.wait_for("GET /g "));
  front.wait_for_ends(6);
  EXPECT_EQ(echo.log(6)[3].method, "POST");
}

// The status, the headers and the type of an answer stay; headers of the connection do not.
TEST(HttpRelay, KeepsHeaders) {
  HttpOptions options;
  options.error_body = error_text;
  HttpServer server(options, [](const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) {
    reply->send({.status = 418,
                 .body = text_of(request.header("x-api-key"), " ", request.header("keep-alive")),
                 .content_type = "text/x-tea",
                 .headers = {{"Retry-After", "7"}}});
  });
  Front front(server.port());
  const RawResponse response = fetch(front.port(), "POST", "/", "{}", "X-API-Key: secret\r\nKeep-Alive: timeout=5\r\n");
  EXPECT_EQ(response.status, 418);
  EXPECT_EQ(response.body, "secret ");
  EXPECT_NE(response.head.find("Content-Type: text/x-tea\r\n"), std::string::npos) << response.head;
  EXPECT_NE(response.head.find("Retry-After: 7\r\n"), std::string::npos);
  EXPECT_EQ(response.head.find("Content-Length", response.head.find("Content-Length") + 1), std::string::npos);
}

TEST(HttpRelay, PassesEventsOnAsTheyArrive) {
  KeptStream stream;
  Front front(stream.port());
  RawClient client(front.port());
  client.send(http_request("GET", "/"));
  const std::shared_ptr<ServerReply> reply = stream.take();
  reply->write("first ");
  ASSERT_TRUE(client.wait_for("first "));
  reply->write("second");
  reply->end();
  ASSERT_TRUE(client.wait_for("second"));
  front.wait_for_ends(1);
}

TEST(HttpRelay, TheServerNoticesThatTheClientHasLeft) {
  EchoServer echo;
  Front front(echo.port());
  RawClient client(front.port());
  client.send(http_request("GET", "/wait"));
  const std::shared_ptr<ServerReply> reply = echo.waiting();
  EXPECT_FALSE(reply->left());
  client.close();
  while (!reply->left()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  front.wait_for_ends(1);
}

// A client that takes nothing does not make the relay hold the whole stream: the server sees congestion.
TEST(HttpRelay, SlowClientsSlowTheServerDown) {
  KeptStream stream;
  Front front(stream.port());
  RawClient client(front.port());
  client.send(http_request("GET", "/"));
  const std::shared_ptr<ServerReply> kept = stream.take();
  const std::string piece(1 << 16, 'y');
  std::size_t written = 0;
  // Sockets hold some MB. A relay that held everything would end this loop at its limit.
  constexpr std::size_t kMost = std::size_t{1} << 30;
  for (int waits = 0; waits < 200 && written < kMost;) {
    if (kept->congested()) {
      ++waits;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    waits = 0;
    kept->write(piece);
    written += piece.size();
  }
  EXPECT_LT(written, kMost);
  kept->end();
  EXPECT_EQ(client.receive().body.size(), written);
}

TEST(HttpRelay, SaysThatAServerGaveNoAnswer) {
  std::uint16_t closed = 0;
  {
    EchoServer echo;
    closed = echo.port();
  }
  Front front(closed);
  const RawResponse response = fetch(front.port(), "GET", "/");
  EXPECT_EQ(response.status, 502);
  EXPECT_TRUE(response.body.starts_with("502: the server behind this one gave no answer: ")) << response.body;
}

// A stream whose server ends before its end is not completed for the client.
TEST(HttpRelay, EndsTheConnectionIfAStreamBreaks) {
  KeptStream stream;
  Front front(stream.port());
  RawClient client(front.port());
  client.send(http_request("GET", "/"));
  std::shared_ptr<ServerReply> reply = stream.take();
  reply->write("begun");
  ASSERT_TRUE(client.wait_for("begun"));
  reply.reset();
  const std::string all = client.rest();
  EXPECT_FALSE(all.ends_with("0\r\n\r\n")) << all;
  front.wait_for_ends(1);
}

TEST(HttpRelay, EndsWhileRequestsAreUnderWay) {
  EchoServer echo;
  int ended = 0;
  {
    HttpRelay relay(error_text);
    HttpOptions options;
    options.error_body = error_text;
    HttpServer server(options, [&](ServerRequest request, std::shared_ptr<ServerReply> reply) {
      relay.forward(std::move(request), std::move(reply), echo.port(), [&] { ++ended; });
    });
    RawClient client(server.port());
    client.send(http_request("GET", "/wait"));
    (void)echo.waiting();
  }
  EXPECT_EQ(ended, 1);
}

}  // namespace
}  // namespace hone::test
