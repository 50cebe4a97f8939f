// The HTTP server over loopback: valid requests, hostile ones, limits, slow readers, departures.
#include "http/server.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"
#include "http/echo_server.h"
#include "support/raw_client.h"

namespace hone::test {
namespace {

TEST(HttpServer, AnswersRequestsOfOneConnectionInOrder) {
  EchoServer echo;
  RawClient client(echo.port());
  client.send(http_request("GET", "/a?b=c") + http_request("POST", "/d", "body") + http_request("GET", "/stream") +
              http_request("HEAD", "/e"));
  EXPECT_EQ(client.receive().body, "GET /a?b=c ");
  EXPECT_EQ(client.receive().body, "POST /d body");
  EXPECT_EQ(client.receive().body, "one two three");
  ASSERT_TRUE(client.wait_for("\r\n\r\n"));
  const std::vector<HttpAccess> log = echo.log(4);
  EXPECT_EQ(log[1].method + log[1].target, "POST/d");
  EXPECT_EQ(log[2].status, 200);
}

TEST(HttpServer, ReadsBodiesInAllForms) {
  EchoServer echo;
  RawClient client(echo.port());
  client.send("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n");
  client.send("2\r\nde\r\n0\r\nHost: trailer\r\n\r\n");
  EXPECT_EQ(client.receive().body, "POST /c abcde");
  client.send("POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.wait_for("100 Continue\r\n\r\n"));
  client.send("hi");
  ASSERT_TRUE(client.wait_for("POST /c hi"));
}

TEST(HttpServer, OldClientsGetStreamsThatEndWithTheConnection) {
  EchoServer echo;
  RawClient client(echo.port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string all = client.rest();
  EXPECT_TRUE(all.ends_with("\r\n\r\none two three")) << all;
}

TEST(HttpServer, RefusesWhatRfc9112Refuses) {
  EchoServer echo({.max_header_bytes = 2000, .max_body_bytes = 100});
  const std::pair<std::string, int> cases[] = {
      {"GET\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x01\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
      {"GET x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nA\x01: x\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 4\r\n\r\nabc", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n", 400},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + std::string(101, 'a') + "\r\n", 413},
      {"GET /" + std::string(3000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n", 431},
      {"GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(200'000, 'a') + "\r\n\r\n", 431},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: more\r\n\r\nabc", 417},
  };
  for (const auto& [text, status] : cases) {
    RawClient client(echo.port());
    client.send(text);
    const RawResponse response = client.receive();
    EXPECT_EQ(response.status, status) << text.substr(0, 120) << "\n" << response.head << response.body;
    EXPECT_TRUE(client.rest().empty()) << text.substr(0, 120);
  }
  EXPECT_EQ(fetch(echo.port(), "GET", "/after").body, "GET /after ");
}

TEST(HttpServer, ClosesSlowAndSilentConnections) {
  EchoServer echo({.header_timeout = std::chrono::milliseconds(50), .body_timeout = std::chrono::milliseconds(50)});
  RawClient silent(echo.port());
  EXPECT_EQ(silent.rest(), "");
  RawClient headers(echo.port());
  headers.send("GET / HTTP/1.1\r\nHo");
  EXPECT_EQ(headers.rest(), "");
  RawClient body(echo.port());
  body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nab");
  EXPECT_EQ(body.rest(), "");
}

TEST(HttpServer, BodiesAndConnectionsAreLimitedTogether) {
  EchoServer echo({.max_body_bytes = 100, .max_buffered_bytes = 150, .max_connections = 3});
  RawClient first(echo.port());
  first.send(http_request("POST", "/wait", std::string(100, 'a')));
  const std::shared_ptr<ServerReply> reply = echo.waiting();
  EXPECT_EQ(fetch(echo.port(), "POST", "/", std::string(51, 'a')).status, 429);
  reply->send({.body = "done"});
  EXPECT_EQ(first.receive().body, "done");
  while (echo.server().connections() > 1) std::this_thread::yield();
  RawClient second(echo.port());
  second.send(http_request("POST", "/", std::string(90, 'b')));
  EXPECT_EQ(second.receive().status, 200);
  RawClient third(echo.port());
  third.send(http_request("GET", "/"));
  EXPECT_EQ(third.receive().status, 200);
  RawClient fourth(echo.port());
  EXPECT_EQ(fourth.receive().status, 429);
}

TEST(HttpServer, NoticesThatTheClientHasLeft) {
  EchoServer echo;
  RawClient client(echo.port());
  client.send(http_request("GET", "/wait"));
  const std::shared_ptr<ServerReply> reply = echo.waiting();
  EXPECT_FALSE(reply->left());
  client.close();
  EXPECT_EQ(echo.log(1)[0].status, 499);
  EXPECT_TRUE(reply->left());
  reply->send({.body = "too late"});
}

TEST(HttpServer, AReplyThatIsDroppedIsAnError) {
  EchoServer echo;
  EXPECT_EQ(fetch(echo.port(), "GET", "/drop").status, 500);
  RawClient client(echo.port());
  client.send(http_request("GET", "/wait"));
  std::shared_ptr<ServerReply> reply = echo.waiting();
  reply->begin_events();
  reply->write("a");
  reply.reset();
  EXPECT_EQ(client.receive().status, 0);
}

TEST(HttpServer, ASlowReaderIsCongestedAndHoldsNobodyUp) {
  EchoServer echo({.max_unsent_bytes = 1000});
  RawClient slow(echo.port());
  slow.send(http_request("GET", "/wait"));
  const std::shared_ptr<ServerReply> reply = echo.waiting();
  reply->begin_events();
  std::size_t written = 0;
  while (!reply->congested() || written < (32 << 20)) {  // more than the buffers of the sockets hold
    reply->write(std::string(1 << 20, 'x'));
    written += 1 << 20;
  }
  EXPECT_EQ(fetch(echo.port(), "GET", "/other").body, "GET /other ");
  reply->end();
  const RawResponse response = slow.receive();
  EXPECT_EQ(response.body.size(), written);
  EXPECT_FALSE(reply->congested());
}

TEST(HttpServer, AClientThatTakesNothingIsDisconnected) {
  EchoServer echo({.write_timeout = std::chrono::milliseconds(50)});
  RawClient client(echo.port());
  client.send(http_request("GET", "/wait"));
  const std::shared_ptr<ServerReply> reply = echo.waiting();
  reply->begin_events();
  for (int i = 0; i < 64; ++i) reply->write(std::string(1 << 20, 'x'));
  EXPECT_EQ(echo.log(1)[0].status, 200);
  EXPECT_TRUE(reply->left());
}

TEST(HttpServer, DrainingFinishesRequestsAndRefusesConnections) {
  EchoServer echo;
  RawClient busy(echo.port());
  busy.send(http_request("GET", "/wait"));
  const std::shared_ptr<ServerReply> reply = echo.waiting();
  RawClient idle(echo.port());
  idle.send(http_request("GET", "/a"));
  EXPECT_EQ(idle.receive().status, 200);
  echo.server().drain();
  EXPECT_EQ(idle.rest(), "");
  EXPECT_THROW(RawClient(echo.port()), std::runtime_error);
  reply->send({.body = "done"});
  EXPECT_EQ(busy.receive().body, "done");
  EXPECT_EQ(busy.rest(), "");
}

TEST(HttpServer, RepliesMayOutliveTheServer) {
  std::shared_ptr<ServerReply> reply;
  {
    EchoServer echo;
    RawClient client(echo.port());
    client.send(http_request("GET", "/wait"));
    reply = echo.waiting();
  }
  EXPECT_TRUE(reply->left());
  reply->send({.body = "too late"});
}

TEST(HttpServer, AnAddressInUseIsAnErrorOfOneLine) {
  EchoServer echo;
  try {
    EchoServer other({.port = echo.port()});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot listen"), std::string::npos) << error.what();
  }
}

TEST(HttpServer, LetsChosenOriginsReadResponses) {
  EchoServer server({.allowed_origins = {"https://a.example"}});
  const auto head = [&](std::string_view method, const std::string& more) {
    return fetch(server.port(), method, "/x", {}, more).head;
  };
  EXPECT_NE(head("GET", "Origin: https://a.example\r\n").find("Access-Control-Allow-Origin: https://a.example\r\n"),
            std::string::npos);
  for (const char* other : {"Origin: https://b.example\r\n", "Origin: null\r\n", ""})
    EXPECT_EQ(head("GET", other).find("Access-Control"), std::string::npos) << other;
  const std::string asked = head("OPTIONS",
                                 "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n"
                                 "Access-Control-Request-Headers: authorization,content-type\r\n");
  EXPECT_NE(asked.find("Access-Control-Allow-Headers: authorization,content-type\r\n"), std::string::npos);
  EXPECT_NE(asked.find("Access-Control-Allow-Methods: GET, POST\r\n"), std::string::npos);
  // Without a permission the handler answers, which knows no OPTIONS.
  EXPECT_EQ(fetch(server.port(), "OPTIONS", "/x", {}, "Access-Control-Request-Method: POST\r\n").body, "OPTIONS /x ");
  const RawResponse stream = fetch(server.port(), "GET", "/stream", {}, "Origin: https://a.example\r\n");
  EXPECT_NE(stream.head.find("Access-Control-Allow-Origin"), std::string::npos);
  EXPECT_EQ(stream.body, "one two three");
  EchoServer open({.allowed_origins = {"*"}});
  EXPECT_NE(fetch(open.port(), "GET", "/x", {}, "Origin: https://b.example\r\n").head.find("https://b.example"),
            std::string::npos);
}

}  // namespace
}  // namespace hone::test
