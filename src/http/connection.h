// One client of the HTTP server. For sources of this room only, because it includes Boost.Beast.
#pragma once

#include <atomic>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "http/message.h"
#include "http/server_state.h"
#include "http/tls_identity.h"

namespace hone {

// One client. Except where noted, its functions run on the thread of the network.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpServerState> server, boost::asio::ip::tcp::socket socket);

  // Sets TLS up, if the server has it, and reads the first request.
  void start();
  void close();
  [[nodiscard]] bool in_flight() const { return in_flight_; }

  // The following may be called from any thread.
  //
  // Appends bytes of the answer to the current request; `last`: they complete it. `status` is 0 except at its begin.
  void write(std::string bytes, int status, bool last);
  void abort();
  [[nodiscard]] bool left() const { return left_; }
  [[nodiscard]] bool congested() const { return unsent_ > options().max_unsent_bytes; }
  [[nodiscard]] const HttpOptions& options() const { return server_->options; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using TlsStream = boost::asio::ssl::stream<boost::beast::tcp_stream&>;
  using ErrorCode = boost::system::error_code;
  using Clock = std::chrono::steady_clock;

  // The request that is being read, from read_head() until dispatch().
  Parser& parser() { return *parser_; }                            // NOLINT(bugprone-unchecked-optional-access)
  [[nodiscard]] const Parser& parser() const { return *parser_; }  // NOLINT(bugprone-unchecked-optional-access)
  // Calls `function` with the stream that requests and answers go through.
  template <class Function>
  void with_stream(const Function& function) {
    if (is_encrypted_)
      function(*tls_);  // NOLINT(bugprone-unchecked-optional-access): is_encrypted_
    else
      function(stream_);
  }
  void on_handshake(const ErrorCode& error);
  void read_head();
  void on_head(const ErrorCode& error);
  // Returns the origin of a web page whose request is allowed; empty if it is not or the request comes from none.
  [[nodiscard]] std::string allowed_origin(const ServerRequest& request) const;
  // Returns the refusal of a head that is well-formed and yet not acceptable, or status 0.
  [[nodiscard]] std::pair<int, std::string_view> fault_of_head() const;
  void send_continue();
  void read_body();
  void on_body(const ErrorCode& error);
  // Counts the bytes of the body. Returns false if all requests together hold too many.
  [[nodiscard]] bool hold_body(std::size_t bytes);
  void dispatch();
  void watch();
  void watch_plain();
  void watch_encrypted();
  void end_watch();
  void on_watched(const ErrorCode& error, std::size_t bytes);
  // Ends a request that could not be read.
  void fail(const ErrorCode& error);
  void refuse(int status, std::string_view message);
  void write_some();
  void on_written(const ErrorCode& error, std::size_t bytes);
  void finish();
  void report();
  // Reads the next request, or ends the connection.
  void proceed();
  void end_encryption();
  void linger();

  std::shared_ptr<HttpServerState> server_;
  boost::beast::tcp_stream stream_;
  std::optional<TlsStream> tls_;  // over stream_
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  ServerRequest request_;  // method and target remain here for the access log
  std::string peer_;
  std::string writing_;  // being sent, from sent_ on
  std::size_t sent_ = 0;
  std::string pending_;  // to be sent after it
  HttpAccess access_;
  Clock::time_point began_{};
  std::size_t held_ = 0;       // bytes of the body in Impl::buffered
  bool in_flight_ = false;     // a request has been read and its answer is not complete
  bool complete_ = false;      // the answer is complete, apart from what is to be sent
  bool keep_alive_ = false;    // another request may follow
  bool is_encrypted_ = false;  // what is read and written goes through tls_
  bool watching_ = false;
  bool closed_ = false;
  std::atomic<bool> left_ = false;
  std::atomic<std::size_t> unsent_ = 0;
};

}  // namespace hone
