#include "http/connection.h"

#include <openssl/err.h>
#include <openssl/sslerr.h>

#include <algorithm>

#include "core/error.h"
#include "http/response_text.h"

namespace hone {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = boost::asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLinger{2'000};  // reading what a refused client still sends
constexpr std::size_t kReadAhead = 64 << 10;         // bytes of a body, or of the next requests, in the buffer
constexpr std::size_t kWatchedBytes = 1 << 10;       // of one read while a request is answered
constexpr int kClientLeft = 499;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

int status_of(const ErrorCode& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  if (error == http::error::body_limit) return 413;
  return 400;
}

// Returns true if the client has sent a request where it should have begun to set up TLS.
bool is_plain_request(const ErrorCode& error) {
  return error.category() == asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST;
}

class ConnectionReply final : public ServerReply {
 public:
  ConnectionReply(std::shared_ptr<HttpConnection> connection, ResponseForm form)
      : connection_(std::move(connection)), form_(std::move(form)) {}
  ~ConnectionReply() override {
    if (complete_) return;
    if (begun_)
      connection_->abort();
    else
      ConnectionReply::send(
          {.status = 500, .body = connection_->options().error_body(500, "the request was not answered")});
  }

  void send(ServerResponse response) override {
    complete_ = true;
    connection_->write(response_text(response, form_), response.status, true);
  }
  void begin_events() override {
    begun_ = true;
    connection_->write(event_stream_head(form_), 200, false);
  }
  void write(std::string_view bytes) override {
    if (!bytes.empty()) connection_->write(stream_part(bytes, form_), 0, false);
  }
  void end() override {
    complete_ = true;
    connection_->write(stream_end(form_), 0, true);
  }
  [[nodiscard]] bool left() const override { return connection_->left(); }
  [[nodiscard]] bool congested() const override { return connection_->congested(); }

 private:
  std::shared_ptr<HttpConnection> connection_;
  ResponseForm form_;
  bool begun_ = false;
  bool complete_ = false;
};

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<HttpServerState> server, tcp::socket socket)
    : server_(std::move(server)), stream_(std::move(socket)), buffer_(options().max_header_bytes + kReadAhead) {
  ErrorCode ignored;
  (void)stream_.socket().non_blocking(true, ignored);
  (void)stream_.socket().set_option(tcp::no_delay(true), ignored);
  const auto peer = stream_.socket().remote_endpoint(ignored);
  if (!ignored) peer_ = text_of(peer.address().to_string(), ":", peer.port());
  is_encrypted_ = options().tls != nullptr;
  if (is_encrypted_) tls_.emplace(stream_, options().tls->context);
}

void HttpConnection::start() {
  if (!is_encrypted_) return read_head();
  stream_.expires_after(options().header_timeout);
  // NOLINTNEXTLINE(bugprone-unchecked-optional-access): is_encrypted_
  tls_->async_handshake(asio::ssl::stream_base::server,
                        [self = shared_from_this()](const ErrorCode& error) { self->on_handshake(error); });
}

void HttpConnection::on_handshake(const ErrorCode& error) {
  if (closed_) return;
  if (!error) return read_head();
  if (!is_plain_request(error)) return close();
  is_encrypted_ = false;
  began_ = Clock::now();
  access_ = {.peer = peer_, .method = {}, .target = {}};
  refuse(400, "this server takes HTTPS only; use a URL that begins with https://");
}

void HttpConnection::read_head() {
  parser_.emplace();
  parser().header_limit(static_cast<std::uint32_t>(options().max_header_bytes));
  parser().body_limit(options().max_body_bytes);
  access_ = {.peer = peer_, .method = {}, .target = {}};
  began_ = Clock::now();
  stream_.expires_after(options().header_timeout);
  with_stream([&](auto& stream) {
    http::async_read_header(stream, buffer_, parser(),
                            [self = shared_from_this()](const ErrorCode& error, std::size_t) { self->on_head(error); });
  });
}

void HttpConnection::on_head(const ErrorCode& error) {
  if (closed_) return;
  began_ = Clock::now();
  if (error) return fail(error);
  const auto& head = parser().get();
  request_ = {};
  request_.method = std::string(head.method_string());
  request_.target = std::string(head.target());
  request_.peer = peer_;
  for (const auto& field : head) request_.headers.emplace_back(field.name_string(), field.value());
  access_.method = request_.method;
  access_.target = request_.target;
  if (const auto [status, message] = fault_of_head(); status != 0) return refuse(status, message);
  keep_alive_ = parser().keep_alive() && head.version() == 11 && !server_->draining;
  if (!hold_body(parser().content_length().value_or(0))) return;
  stream_.expires_after(options().body_timeout);
  if (!parser().is_done() && !request_.header("expect").empty()) return send_continue();
  read_body();
}

void HttpConnection::send_continue() {
  with_stream([&](auto& stream) {
    asio::async_write(stream, asio::buffer(kContinue.data(), kContinue.size()),
                      [self = shared_from_this()](const ErrorCode& error, std::size_t) {
                        if (self->closed_) return;
                        error ? self->close() : self->read_body();
                      });
  });
}

std::pair<int, std::string_view> HttpConnection::fault_of_head() const {
  const auto& head = parser().get();
  const auto count = [&](std::string_view name) {
    return std::ranges::count_if(request_.headers, [&](const auto& one) { return equal_in_any_case(one.first, name); });
  };
  if (head.version() == 11 && count("host") != 1) return {400, "a request has exactly one Host header"};
  if (count("content-length") > 1 || request_.header("content-length").find(',') != std::string_view::npos)
    return {400, "a request has at most one Content-Length"};
  if (const auto codings = count("transfer-encoding"); codings > 0) {
    if (count("content-length") > 0) return {400, "Content-Length and Transfer-Encoding are given together"};
    if (head.version() != 11) return {400, "Transfer-Encoding needs HTTP/1.1"};
    if (codings > 1 || !equal_in_any_case(request_.header("transfer-encoding"), "chunked"))
      return {400, "the only transfer coding is chunked"};
  }
  if (const auto expect = request_.header("expect"); !expect.empty() && !equal_in_any_case(expect, "100-continue"))
    return {417, "the only expectation is 100-continue"};
  if (!request_.target.starts_with('/')) return {400, "the target of a request begins with /"};
  return {0, {}};
}

void HttpConnection::read_body() {
  if (parser().is_done()) return dispatch();
  with_stream([&](auto& stream) {
    http::async_read_some(stream, buffer_, parser(),
                          [self = shared_from_this()](const ErrorCode& error, std::size_t) { self->on_body(error); });
  });
}

void HttpConnection::on_body(const ErrorCode& error) {
  if (closed_) return;
  if (error) return fail(error);
  if (hold_body(parser().get().body().size())) read_body();
}

bool HttpConnection::hold_body(std::size_t bytes) {
  if (bytes > held_) server_->buffered += bytes - std::exchange(held_, bytes);
  if (server_->buffered <= options().max_buffered_bytes) return true;
  refuse(429, "the bodies of the requests under way are too large together; try again later");
  return false;
}

std::string HttpConnection::allowed_origin(const ServerRequest& request) const {
  const std::string_view origin = request.header("origin");
  const auto& allowed = options().allowed_origins;
  if (origin.empty() || std::ranges::none_of(allowed, [&](const auto& one) { return one == "*" || one == origin; }))
    return {};
  return std::string(origin);
}

void HttpConnection::dispatch() {
  request_.body = std::move(parser().get().body());
  const ResponseForm form{.version = static_cast<int>(parser().get().version()),
                          .keep_alive = keep_alive_,
                          .head_only = request_.method == "HEAD",
                          .origin = allowed_origin(request_)};
  parser_.reset();
  stream_.expires_never();
  in_flight_ = true;
  complete_ = false;
  watch();
  // A browser asks before it sends what a form could not send. The answer does not depend on the target: whether there
  // is one shows in the response to the request itself.
  if (!form.origin.empty() && request_.method == "OPTIONS" &&
      !request_.header("access-control-request-method").empty()) {
    ServerResponse allowed{.status = 200, .body = {}, .headers = {{"Access-Control-Allow-Methods", "GET, POST"}}};
    allowed.headers.emplace_back("Access-Control-Allow-Headers", request_.header("access-control-request-headers"));
    allowed.headers.emplace_back("Access-Control-Max-Age", "600");
    return write(response_text(allowed, form), allowed.status, true);
  }
  auto reply = std::make_shared<ConnectionReply>(shared_from_this(), form);
  auto& handlers = *server_->handlers;  // NOLINT(bugprone-unchecked-optional-access): made before any connection
  asio::post(handlers, [server = server_, request = std::move(request_), reply = std::move(reply)]() mutable {
    server->handler(std::move(request), std::move(reply));
  });
  request_ = {};
}

// Notices that the client leaves while its request is answered.
void HttpConnection::watch() {
  if (watching_) return;
  is_encrypted_ ? watch_encrypted() : watch_plain();
}

// Bytes that arrive belong to a next request; they are left where they are, and a later departure shows when something
// is sent.
void HttpConnection::watch_plain() {
  watching_ = true;
  stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this()](const ErrorCode& error) {
    self->watching_ = false;
    if (error || self->closed_ || !self->in_flight_) return;
    char byte = 0;
    ErrorCode state;
    self->stream_.socket().receive(asio::buffer(&byte, 1), tcp::socket::message_peek, state);
    if (state == asio::error::would_block) return self->watch();
    if (state) self->close();
  });
}

// Bytes on the socket may be messages of TLS itself, such as the end of the connection, so they say little until they
// are decrypted. What belongs to a next request is kept in the buffer, up to the size of headers.
void HttpConnection::watch_encrypted() {
  if (buffer_.size() >= options().max_header_bytes) return;
  watching_ = true;
  // NOLINTNEXTLINE(bugprone-unchecked-optional-access): is_encrypted_
  tls_->async_read_some(
      buffer_.prepare(kWatchedBytes),
      [self = shared_from_this()](const ErrorCode& error, std::size_t bytes) { self->on_watched(error, bytes); });
}

// Ends the read of watch_encrypted(), after which on_watched() proceeds. That read continues if a part of a message has
// just arrived, so that one cancellation may not reach it.
void HttpConnection::end_watch() {
  if (closed_ || in_flight_ || !watching_) return;
  stream_.cancel();
  asio::post(server_->io, [self = shared_from_this()] { self->end_watch(); });
}

void HttpConnection::on_watched(const ErrorCode& error, std::size_t bytes) {
  watching_ = false;
  if (closed_) return;
  buffer_.commit(bytes);
  if (!in_flight_) return proceed();
  error ? close() : watch();
}

void HttpConnection::fail(const ErrorCode& error) {
  const bool is_malformed = error.category() == http::make_error_code(http::error::bad_field).category() &&
                            error != http::error::end_of_stream && error != http::error::partial_message;
  if (!is_malformed) return close();  // the client has left or was too slow
  refuse(status_of(error), text_of("the request is not valid HTTP: ", error.message()));
}

void HttpConnection::refuse(int status, std::string_view message) {
  keep_alive_ = false;
  in_flight_ = true;
  complete_ = false;
  stream_.expires_never();
  const ResponseForm form{.version = 11, .keep_alive = false, .head_only = access_.method == "HEAD"};
  write(response_text({.status = status, .body = options().error_body(status, message)}, form), status, true);
}

void HttpConnection::write(std::string bytes, int status, bool last) {
  if (left_) return;
  unsent_ += bytes.size();
  server_->post([self = shared_from_this(), bytes = std::move(bytes), status, last] {
    if (self->closed_) return;
    if (status != 0) self->access_.status = status;
    self->complete_ = self->complete_ || last;
    const bool busy = !self->writing_.empty();
    (busy ? self->pending_ : self->writing_) += bytes;
    if (!busy) self->write_some();
  });
}

void HttpConnection::abort() {
  server_->post([self = shared_from_this()] { self->close(); });
}

void HttpConnection::write_some() {
  if (writing_.empty()) {
    if (complete_) finish();
    return;
  }
  stream_.expires_after(options().write_timeout);
  with_stream([&](auto& stream) {
    stream.async_write_some(
        asio::buffer(writing_.data() + sent_, writing_.size() - sent_),
        [self = shared_from_this()](const ErrorCode& error, std::size_t bytes) { self->on_written(error, bytes); });
  });
}

void HttpConnection::on_written(const ErrorCode& error, std::size_t bytes) {
  if (closed_) return;
  if (error) return close();
  stream_.expires_never();
  unsent_ -= bytes;
  access_.sent_bytes += bytes;
  sent_ += bytes;
  if (sent_ == writing_.size()) {
    writing_ = std::exchange(pending_, {});
    sent_ = 0;
  }
  write_some();
}

void HttpConnection::finish() {
  report();
  if (is_encrypted_ && watching_) return end_watch();
  proceed();
}

void HttpConnection::proceed() {
  if (keep_alive_ && !server_->draining) return read_head();
  is_encrypted_ ? end_encryption() : linger();
}

// Announces the end of the answers in TLS, so that clients can tell it from an attacker's.
void HttpConnection::end_encryption() {
  stream_.expires_after(kLinger);
  // NOLINTNEXTLINE(bugprone-unchecked-optional-access): is_encrypted_
  tls_->async_shutdown([self = shared_from_this()](const ErrorCode&) {
    if (!self->closed_) self->linger();
  });
}

// Ends the current request: writes its line of the access log and gives its bytes back.
void HttpConnection::report() {
  server_->buffered -= std::exchange(held_, 0);
  if (!std::exchange(in_flight_, false)) return;
  access_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  if (access_.status == 0) access_.status = kClientLeft;
  if (options().on_access) options().on_access(access_);
}

// Sends the end of the stream and reads what the client still sends, because closing a socket with unread bytes would
// make the system drop the answer.
void HttpConnection::linger() {
  ErrorCode ignored;
  (void)stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  buffer_.clear();
  stream_.expires_after(kLinger);
  asio::async_read(stream_, buffer_.prepare(1024),
                   [self = shared_from_this(), until = Clock::now() + kLinger](const ErrorCode& error, std::size_t) {
                     if (error || self->closed_ || Clock::now() > until) return self->close();
                     self->linger();
                   });
}

void HttpConnection::close() {
  if (std::exchange(closed_, true)) return;
  left_ = true;
  report();
  stream_.close();  // and its timers, which expires_never() would not do while it both reads and writes
  writing_ = {};
  pending_ = {};
  server_->open = server_->connections.size() - server_->connections.count(shared_from_this());
  server_->connections.erase(shared_from_this());
}

}  // namespace hone
