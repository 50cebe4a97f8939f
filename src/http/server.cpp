#include "http/server.h"

#include "core/error.h"
#include "http/connection.h"
#include "http/response_text.h"
#include "http/server_state.h"
#include "system/open_files.h"

namespace hone {
namespace {

namespace asio = boost::asio;
using tcp = boost::asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptPause{100};  // after an accept that failed for lack of descriptors
constexpr std::size_t kSpareDescriptors = 256;          // for everything but connections

}  // namespace

void HttpServerState::listen() {
  const std::shared_ptr<BoundAddress> address =
      options.address != nullptr ? options.address : std::make_shared<BoundAddress>(options.host, options.port);
  try {
    acceptor.assign(address->is_ipv6() ? tcp::v6() : tcp::v4(), address->release());
    acceptor.listen();
    port = acceptor.local_endpoint().port();
  } catch (const boost::system::system_error& error) {
    throw_cannot_listen(options.host, options.port, error.code().message());
  }
}

void HttpServerState::accept() {
  acceptor.async_accept([self = shared_from_this()](const ErrorCode& error, tcp::socket socket) {
    self->on_accept(error, std::move(socket));
  });
}

// Answers a connection that is one too many. A client of HTTPS would first have to set up TLS; it is left without an
// answer.
void HttpServerState::refuse(tcp::socket& socket) const {
  if (options.tls) return;
  const ResponseForm form{.version = 11, .keep_alive = false, .head_only = false};
  const std::string text = response_text(
      {.status = 429, .body = options.error_body(429, "too many connections"), .headers = {{"Retry-After", "1"}}},
      form);
  ErrorCode ignored;
  (void)socket.non_blocking(true, ignored);
  (void)socket.write_some(asio::buffer(text), ignored);
}

void HttpServerState::on_accept(const ErrorCode& error, tcp::socket socket) {
  if (draining || error == asio::error::operation_aborted) return;
  if (error) {  // no descriptor is left, or the client has gone already
    accept_pause.expires_after(kAcceptPause);
    return accept_pause.async_wait([self = shared_from_this()](const ErrorCode& ended_early) {
      if (!ended_early && !self->draining) self->accept();
    });
  }
  if (connections.size() >= options.max_connections) {
    refuse(socket);
  } else {
    auto connection = std::make_shared<HttpConnection>(shared_from_this(), std::move(socket));
    connections.insert(connection);
    open = connections.size();
    connection->start();
  }
  accept();
}

void HttpServerState::run() {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception&) {
      continue;  // out of memory: the other connections continue
    }
  }
}

HttpServer::HttpServer(HttpOptions options, Handler handler)
    : state_(std::make_shared<HttpServerState>(std::move(options), std::move(handler))) {
  allow_open_files(state_->options.max_connections + kSpareDescriptors);
  state_->listen();
  state_->accept();
  state_->handlers.emplace(state_->options.handler_threads);
  state_->network = std::thread([state = state_] { state->run(); });
}

HttpServer::~HttpServer() {
  drain();
  if (auto& handlers = state_->handlers; handlers) handlers->join();
  {
    const std::lock_guard lock(state_->mutex);
    asio::post(state_->io, [state = state_] {
      const auto open = state->connections;
      for (const auto& connection : open) connection->close();
      state->work.reset();
    });
    state_->ended = true;
  }
  state_->network.join();
}

std::uint16_t HttpServer::port() const { return state_->port; }

std::size_t HttpServer::connections() const { return state_->open; }

void HttpServer::wait_until_idle(std::chrono::milliseconds longest) const {
  const auto deadline = std::chrono::steady_clock::now() + longest;
  while (connections() > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void HttpServer::drain() {
  state_->post([state = state_] {
    state->draining = true;
    ErrorCode ignored;
    (void)state->acceptor.close(ignored);
    state->accept_pause.cancel();
    const auto open = state->connections;
    for (const auto& connection : open)
      if (!connection->in_flight()) connection->close();
  });
}

}  // namespace hone
