// The state that the parts of the HTTP server share. For sources of this room only, because it includes Boost.Asio.
#pragma once

#include <atomic>
#include <boost/asio.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "http/server.h"

namespace hone {

class HttpConnection;

struct HttpServerState : std::enable_shared_from_this<HttpServerState> {
  HttpServerState(HttpOptions given, HttpServer::Handler handle)
      : options(std::move(given)), handler(std::move(handle)) {}

  void listen();
  void accept();
  void on_accept(const boost::system::error_code& error, boost::asio::ip::tcp::socket socket);
  void refuse(boost::asio::ip::tcp::socket& socket) const;
  void run();
  // Runs a function on the thread of the network, unless the server has ended.
  template <class Function>
  void post(Function function) {
    const std::lock_guard lock(mutex);
    if (!ended) boost::asio::post(io, std::move(function));
  }

  const HttpOptions options;
  const HttpServer::Handler handler;
  boost::asio::io_context io{1};
  boost::asio::ip::tcp::acceptor acceptor{io};
  boost::asio::steady_timer accept_pause{io};
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work{io.get_executor()};
  std::optional<boost::asio::thread_pool> handlers;
  std::thread network;
  std::mutex mutex;
  bool ended = false;  // guarded by mutex
  std::atomic<std::size_t> open = 0;
  std::uint16_t port = 0;
  // The rest belongs to the thread of the network.
  std::set<std::shared_ptr<HttpConnection>> connections;
  std::size_t buffered = 0;  // bytes of bodies
  bool draining = false;
};

}  // namespace hone
