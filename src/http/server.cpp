#include "http/server.h"

#include <sys/resource.h>

#include <algorithm>

#include "core/error.h"
#include "http/connection.h"
#include "http/response_text.h"
#include "http/server_state.h"

namespace hone {
namespace {

namespace asio = boost::asio;
using tcp = boost::asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptPause{100};  // after an accept that failed for lack of descriptors
constexpr std::size_t kSpareDescriptors = 256;          // for everything but connections

// Raises the limit of open files to what so many connections need, as far as the system allows.
void allow_descriptors(std::size_t connections) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto needed = static_cast<rlim_t>(connections + kSpareDescriptors);
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

void HttpServerState::listen() {
  try {
    tcp::resolver resolver(io);
    const tcp::endpoint endpoint =
        resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive)->endpoint();
    acceptor.open(endpoint.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen();
    port = acceptor.local_endpoint().port();
  } catch (const boost::system::system_error& error) {
    throw Error(text_of(options.host, ":", options.port), text_of("cannot listen: ", error.code().message()),
                "use another --host or --port");
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
  allow_descriptors(state_->options.max_connections);
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
