#include "http/relay.h"

#include <algorithm>
#include <array>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "core/error.h"
#include "system/open_files.h"

namespace hone {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = boost::asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::chrono::seconds kConnectLimit{30};
constexpr std::chrono::milliseconds kLook{250};   // between looks whether the client of a request has left
constexpr std::chrono::milliseconds kPause{2};    // while the client takes events more slowly than they arrive
constexpr std::size_t kPieceBytes = 16 << 10;     // of an answer, read at a time
constexpr std::size_t kMostHeadBytes = 64 << 10;  // of an answer's status and headers

// Headers of one connection, and those that the two servers write themselves.
bool is_own(std::string_view name) {
  constexpr std::array<std::string_view, 10> kOwn{
      "connection", "keep-alive",        "host", "content-length", "date",
      "expect",     "transfer-encoding", "te",   "upgrade",        "trailer"};
  return std::ranges::any_of(kOwn, [&](std::string_view own) { return equal_in_any_case(own, name); });
}

}  // namespace

struct HttpRelay::State {
  explicit State(ErrorBody body) : error_body(std::move(body)) {}

  const ErrorBody error_body;
  asio::io_context io{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work{io.get_executor()};
  std::thread network;
};

// A request under way. Its functions run on the thread of the network.
class HttpRelay::Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(State& state, ServerRequest request, std::shared_ptr<ServerReply> reply, std::function<void()> on_end)
      : error_body_(state.error_body),
        reply_(std::move(reply)),
        on_end_(std::move(on_end)),
        stream_(state.io),
        look_(state.io),
        pause_(state.io) {
    request_.version(11);
    // The answer to HEAD is that to GET; the connection to the client leaves its body out.
    request_.method_string(request.method == "HEAD" ? "GET" : request.method);
    request_.target(request.target);
    for (const auto& [name, value] : request.headers) {
      if (!is_own(name)) request_.insert(name, value);
    }
    request_.set(http::field::host, "127.0.0.1");
    request_.set(http::field::connection, "close");
    request_.body() = std::move(request.body);
    request_.prepare_payload();
    parser_.body_limit(std::numeric_limits<std::int64_t>::max());  // of Beast 1.74, no limit refuses all bodies
    parser_.header_limit(kMostHeadBytes);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() { on_end_(); }

  void start(std::uint16_t port) {
    look();
    stream_.expires_after(kConnectLimit);
    stream_.async_connect(tcp::endpoint(asio::ip::address_v4::loopback(), port),
                          [self = shared_from_this()](const ErrorCode& error) {
                            if (self->over_) return;
                            if (error) return self->fail(error);
                            self->send();
                          });
  }

 private:
  void send() {
    ErrorCode ignored;
    (void)stream_.socket().set_option(tcp::no_delay(true), ignored);
    stream_.expires_never();
    // A server may refuse a request before it has read all of it: what it says counts, not that the rest was not sent.
    http::async_write(stream_, request_, [self = shared_from_this()](const ErrorCode&, std::size_t) {
      http::async_read_header(self->stream_, self->buffer_, self->parser_,
                              [self](const ErrorCode& error, std::size_t) { self->on_head(error); });
    });
  }

  void on_head(const ErrorCode& error) {
    if (over_) return;
    if (error) return fail(error);
    const auto& head = parser_.get();
    answer_.status = static_cast<int>(head.result_int());
    answer_.content_type = std::string(head[http::field::content_type]);
    for (const auto& field : head) {
      const std::string name(field.name_string());
      if (!is_own(name) && field.name() != http::field::content_type)
        answer_.headers.emplace_back(name, std::string(field.value()));
    }
    streams_ = answer_.status == 200 && answer_.content_type.starts_with("text/event-stream");
    if (streams_) reply_->begin_events();
    read();
  }

  void read() {
    if (parser_.is_done()) return end();
    parser_.get().body().data = piece_.data();
    parser_.get().body().size = piece_.size();
    http::async_read_some(stream_, buffer_, parser_,
                          [self = shared_from_this()](const ErrorCode& error, std::size_t) { self->on_piece(error); });
  }

  void on_piece(const ErrorCode& error) {
    if (over_) return;
    if (error && error != http::error::need_buffer) return fail(error);
    const std::string_view piece(piece_.data(), piece_.size() - parser_.get().body().size);
    if (!streams_) {
      answer_.body += piece;
      return read();
    }
    reply_->write(piece);
    wait_for_client();
  }

  // Reads on when the client has taken most of what it was sent.
  void wait_for_client() {
    if (reply_->left()) return give_up();
    if (!reply_->congested()) return read();
    pause_.expires_after(kPause);
    pause_.async_wait([self = shared_from_this()](const ErrorCode& error) {
      if (!error) self->wait_for_client();
    });
  }

  // The server is to notice soon that the client has left, also while it sends nothing.
  void look() {
    look_.expires_after(kLook);
    look_.async_wait([weak = weak_from_this()](const ErrorCode& error) {
      const auto self = weak.lock();
      if (error || !self || self->over_) return;
      self->reply_->left() ? self->give_up() : self->look();
    });
  }

  void end() {
    if (std::exchange(over_, true)) return;
    streams_ ? reply_->end() : reply_->send(std::move(answer_));
    close();
  }

  void fail(const ErrorCode& error) {
    if (std::exchange(over_, true)) return;
    if (!streams_) {
      reply_->send({.status = 502,
                    .body = error_body_(502, text_of("the server behind this one gave no answer: ", error.message()))});
    }
    close();
  }

  void give_up() {
    over_ = true;
    close();
  }

  void close() {
    look_.cancel();
    pause_.cancel();
    stream_.close();
    reply_.reset();  // within events, the end of the connection
  }

  const ErrorBody& error_body_;
  std::shared_ptr<ServerReply> reply_;
  std::function<void()> on_end_;
  beast::tcp_stream stream_;
  asio::steady_timer look_;
  asio::steady_timer pause_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response_parser<http::buffer_body> parser_;
  std::array<char, kPieceBytes> piece_{};
  ServerResponse answer_;
  bool streams_ = false;  // the answer is events
  bool over_ = false;     // answered or given up; reply_ is null
};

HttpRelay::HttpRelay(ErrorBody error_body) : state_(std::make_unique<State>(std::move(error_body))) {
  allow_open_files();  // each request takes a connection more than those of the clients
  state_->network = std::thread([state = state_.get()] { state->io.run(); });
}

HttpRelay::~HttpRelay() {
  state_->io.stop();
  state_->network.join();
}

void HttpRelay::forward(ServerRequest request, std::shared_ptr<ServerReply> reply, std::uint16_t port,
                        std::function<void()> on_end) {
  auto exchange = std::make_shared<Exchange>(*state_, std::move(request), std::move(reply), std::move(on_end));
  asio::post(state_->io, [exchange = std::move(exchange), port] { exchange->start(port); });
}

}  // namespace hone
