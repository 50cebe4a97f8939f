// The HTTP server over TLS, and what it refuses to use as a certificate.
#include "http/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "core/error.h"
#include "core/files.h"
#include "http/echo_server.h"
#include "support/certificate.h"
#include "support/paths.h"
#include "support/tls_client.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

class Tls : public testing::Test {
 protected:
  [[nodiscard]] std::string write(const std::string& name, const std::string& content) const {
    const std::filesystem::path file = folder_.path() / name;
    write_file(file, content);
    return file.string();
  }
  [[nodiscard]] HttpOptions with_tls(HttpOptions options = {}) const {
    options.tls = read_tls_identity(write("certificate", own_.certificate), write("key", own_.key));
    return options;
  }
  [[nodiscard]] const std::string& trusted() const { return own_.certificate; }

  TemporaryDirectory folder_;
  Certificate own_ = make_certificate();
};

TEST_F(Tls, AnswersRequestsOfOneConnectionInOrder) {
  EchoServer echo(with_tls());
  TlsClient client(echo.port(), trusted());
  EXPECT_EQ(client.version(), "TLSv1.3");
  const std::string body(100'000, 'b');
  client.send(http_request("GET", "/a?b=c") + http_request("POST", "/d", body) + http_request("GET", "/stream"));
  EXPECT_EQ(client.receive().body, "GET /a?b=c ");
  EXPECT_EQ(client.receive().body, "POST /d " + body);
  EXPECT_EQ(client.receive().body, "one two three");
  for (int i = 0; i < 20; ++i) {
    client.send(http_request("GET", "/again"));
    EXPECT_EQ(client.receive().body, "GET /again ");
  }
  EXPECT_EQ(echo.log(23)[1].method, "POST");
}

TEST_F(Tls, ReadsBodiesInAllForms) {
  EchoServer echo(with_tls());
  TlsClient client(echo.port(), trusted(), TLS1_2_VERSION);
  EXPECT_EQ(client.version(), "TLSv1.2");
  client.send("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n");
  client.send("2\r\nde\r\n0\r\nHost: trailer\r\n\r\n");
  EXPECT_EQ(client.receive().body, "POST /c abcde");
  client.send("POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.wait_for("100 Continue\r\n\r\n"));
  client.send("hi");
  ASSERT_TRUE(client.wait_for("POST /c hi"));
}

// While one request is answered, bytes of the next may arrive in any parts.
TEST_F(Tls, KeepsTheNextRequestUntilItsTurn) {
  EchoServer echo(with_tls());
  TlsClient client(echo.port(), trusted());
  client.send(http_request("GET", "/wait"));
  std::shared_ptr<ServerReply> reply = echo.waiting();
  const std::string next = http_request("POST", "/next", std::string(30'000, 'n'));
  const std::string message = client.encrypted(next.substr(0, 100));
  client.send_raw(message.substr(0, 20));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the server has a part of a message, most likely
  reply->send({.body = "first"});
  EXPECT_EQ(client.receive().body, "first");
  client.send_raw(message.substr(20));
  client.send(next.substr(100));
  EXPECT_EQ(client.receive().body, "POST /next " + std::string(30'000, 'n'));
  client.send(http_request("GET", "/wait"));
  reply = echo.waiting();
  client.send(http_request("GET", "/a") + http_request("POST", "/b", std::string(50'000, 'b')));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(reply->left());
  reply->send({.body = "second"});
  EXPECT_EQ(client.receive().body, "second");
  EXPECT_EQ(client.receive().body, "GET /a ");
  EXPECT_EQ(client.receive().body.size(), 50'008U);
}

// Without the announcement a client could not tell the end of a stream from a connection that an attacker has cut.
TEST_F(Tls, AnnouncesTheEndOfAnswers) {
  EchoServer echo(with_tls());
  TlsClient old(echo.port(), trusted());
  old.send("GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.rest(), HasSubstr("\r\n\r\none two three"));
  EXPECT_TRUE(old.ended_cleanly());
  TlsClient refused(echo.port(), trusted());
  refused.send("GET / HTTP/2.0\r\nHost: x\r\n\r\n" + std::string(100'000, 'a'));
  EXPECT_EQ(refused.receive().status, 400);
  EXPECT_EQ(refused.rest(), "");
  EXPECT_TRUE(refused.ended_cleanly());
}

TEST_F(Tls, NoticesThatTheClientHasLeft) {
  EchoServer echo(with_tls());
  for (const bool announced : {true, false}) {
    TlsClient client(echo.port(), trusted());
    client.send(http_request("GET", "/wait"));
    const std::shared_ptr<ServerReply> reply = echo.waiting();
    client.send(http_request("GET", "/a"));  // a next request hides no departure
    EXPECT_FALSE(reply->left());
    if (announced)
      client.close();
    else
      client.drop();
    EXPECT_EQ(echo.log(announced ? 1 : 2).back().status, 499);
    EXPECT_TRUE(reply->left());
    reply->send({.body = "too late"});
  }
}

TEST_F(Tls, ASlowReaderIsCongestedAndHoldsNobodyUp) {
  EchoServer echo(with_tls({.max_unsent_bytes = 1000}));
  TlsClient slow(echo.port(), trusted());
  slow.send(http_request("GET", "/wait"));
  const std::shared_ptr<ServerReply> reply = echo.waiting();
  reply->begin_events();
  std::size_t written = 0;
  while (!reply->congested() || written < (32 << 20)) {  // more than the buffers of the sockets hold
    reply->write(std::string(1 << 20, 'x'));
    written += 1 << 20;
  }
  EXPECT_EQ(fetch_encrypted(echo.port(), trusted(), "GET", "/other").body, "GET /other ");
  reply->end();
  EXPECT_EQ(slow.receive().body.size(), written);
}

TEST_F(Tls, ClosesSlowAndSilentConnections) {
  EchoServer echo(with_tls({.header_timeout = std::chrono::milliseconds(200)}));
  RawClient silent(echo.port());
  EXPECT_EQ(silent.rest(), "");
  RawClient begun(echo.port());
  begun.send("\x16\x03\x01");
  EXPECT_EQ(begun.rest(), "");
  // A request that is followed by none, and one that is followed by a part of a message. On a machine that is very busy
  // the clients themselves may be too slow at first.
  for (const bool part : {false, true}) {
    for (bool served = false; !served;) {
      try {
        TlsClient client(echo.port(), trusted());
        client.send(http_request("GET", "/a"));
        if (part) client.send_raw(client.encrypted("GET").substr(0, 10));
        served = client.receive().status == 200;
        EXPECT_EQ(client.rest(), "");
      } catch (const std::runtime_error&) {
        continue;
      }
    }
  }
}

TEST_F(Tls, RefusesWhatIsNotTls) {
  EchoServer echo(with_tls());
  const RawResponse plain = fetch(echo.port(), "GET", "/");
  EXPECT_EQ(plain.status, 400);
  EXPECT_THAT(plain.body, HasSubstr("HTTPS only"));
  RawClient garbage(echo.port());
  garbage.send(std::string(1000, '\x80'));
  EXPECT_EQ(garbage.receive().status, 0);
  EXPECT_THROW(TlsClient(echo.port(), trusted(), TLS1_1_VERSION), std::runtime_error);
  EXPECT_THROW(TlsClient(echo.port(), make_certificate().certificate), std::runtime_error) << "another authority";
  EXPECT_EQ(fetch_encrypted(echo.port(), trusted(), "GET", "/after").body, "GET /after ");
}

TEST_F(Tls, ConnectionsAreLimitedAndDrained) {
  EchoServer echo(with_tls({.max_connections = 2}));
  TlsClient busy(echo.port(), trusted());
  busy.send(http_request("GET", "/wait"));
  const std::shared_ptr<ServerReply> reply = echo.waiting();
  TlsClient idle(echo.port(), trusted());
  idle.send(http_request("GET", "/a"));
  EXPECT_EQ(idle.receive().status, 200);
  EXPECT_THROW(TlsClient(echo.port(), trusted()), std::runtime_error);
  echo.server().drain();
  EXPECT_EQ(idle.rest(), "");
  reply->send({.body = "done"});
  EXPECT_EQ(busy.receive().body, "done");
  EXPECT_EQ(busy.rest(), "");
  EXPECT_TRUE(busy.ended_cleanly());
}

TEST_F(Tls, OneFileMayHaveBothAndCertificatesOfEitherKind) {
  EXPECT_EQ(read_tls_identity("", ""), nullptr);
  const Certificate rsa = make_certificate(KeyKind::kRsa);
  HttpOptions options;
  options.tls = read_tls_identity(write("both", rsa.key + rsa.certificate + own_.certificate), "");
  EchoServer echo(options);
  EXPECT_EQ(fetch_encrypted(echo.port(), rsa.certificate, "GET", "/").body, "GET / ");
}

TEST_F(Tls, MistakesAreOneLine) {
  const Certificate other = make_certificate();
  const std::string certificate = write("certificate", own_.certificate);
  const std::string key = write("key", own_.key);
  const std::string absent = (folder_.path() / "absent").string();
  const std::string folder = folder_.path().string();
  std::string broken = own_.certificate;
  broken[broken.size() / 2] = '!';
  const std::string closed = write("closed", own_.key);
  std::filesystem::permissions(closed, std::filesystem::perms::none);
  std::vector<std::array<std::string, 3>> cases = {
      {absent, key, "ssl_certfile: " + absent + ": cannot open"},
      {certificate, absent, "ssl_keyfile: " + absent + ": cannot open"},
      {folder, key, "ssl_certfile: " + folder + ": is a folder"},
      {"", key, "ssl_keyfile: is given without a certificate"},
      {key, key, "ssl_certfile: " + key + " cannot be used as a certificate"},
      {write("empty", ""), key, "cannot be used as a certificate"},
      {write("broken", broken), key, "cannot be used as a certificate"},
      {certificate, certificate, "ssl_keyfile: " + certificate + " has no private key"},
      {certificate, "", "ssl_keyfile: " + certificate + " has no private key"},
      {certificate, write("encrypted", own_.encrypted_key), "has an encrypted key (decrypt it: openssl pkey -in"},
      {certificate, write("other", other.key), "is not that of the certificate"},
      {certificate, write("rsa", make_certificate(KeyKind::kRsa).key), "is not that of the certificate"},
  };
  if (::geteuid() != 0) cases.push_back({certificate, closed, "ssl_keyfile: " + closed + ": cannot open"});
  for (const auto& [certificate_file, key_file, expected] : cases) {
    try {
      (void)read_tls_identity(certificate_file, key_file);
      ADD_FAILURE() << expected;
    } catch (const Error& error) {
      const std::string line = error.what();
      EXPECT_THAT(line, HasSubstr(expected));
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    }
  }
}

}  // namespace
}  // namespace hone::test
