#include "rendezvous/store_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "rendezvous/address.h"
#include "system/poll.h"

namespace hone {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};

Descriptor listen_at(const std::string& host, std::uint16_t port, std::uint16_t& bound) {
  const sockaddr_in address = ipv4_address(host, port);
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  (void)::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (!socket.open() || ::bind(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.number(), static_cast<int>(kMostStoreClients)) != 0)
    throw Error(text_of(host, ":", port), text_of("cannot be listened on: ", std::strerror(errno)),
                "choose another port, in TRL vllm_group_port");
  sockaddr_in own{};
  socklen_t length = sizeof own;
  (void)::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&own), &length);
  bound = ntohs(own.sin_port);
  return socket;
}

}  // namespace

StoreServer::StoreServer(const std::string& host, std::uint16_t port, std::function<void(const StoreServer&)> changed)
    : changed_(std::move(changed)),
      listener_(listen_at(host, port, port_)),
      wake_(make_pipe()),
      thread_([this] { run(); }) {}

StoreServer::~StoreServer() {
  ends_ = true;
  wake();
  thread_.join();
}

std::size_t StoreServer::clients() const {
  const std::lock_guard lock(mutex_);
  return state_.valid_clients();
}

void StoreServer::set(const std::string& key, std::string value) {
  {
    const std::lock_guard lock(mutex_);
    state_.set(key, std::move(value));
  }
  wake();
}

std::optional<std::string> StoreServer::get(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return state_.get(key);
}

void StoreServer::erase(const std::string& key) {
  const std::lock_guard lock(mutex_);
  (void)state_.erase(key);
}

bool StoreServer::wait_for_any(std::span<const std::string> keys, Deadline deadline) const {
  std::unique_lock lock(mutex_);
  bool found = false;
  (void)news_.wait_until(lock, deadline, [&] {
    for (const std::string& key : keys) found = found || state_.get(key).has_value();
    return found || state_.valid_clients() == 0;
  });
  return found;
}

void StoreServer::wake() { (void)!::write(wake_.write.number(), "w", 1); }

void StoreServer::run() {
  std::vector<pollfd> entries;
  while (!ends_) {
    entries = {{listener_.number(), POLLIN, 0}, {wake_.read.number(), POLLIN, 0}};
    for (const Connection& connection : connections_) {
      const std::lock_guard lock(mutex_);
      const bool has_output = !state_.output(connection.client).empty();
      entries.push_back({connection.socket.number(), static_cast<short>(has_output ? POLLIN | POLLOUT : POLLIN), 0});
    }
    (void)poll_until(entries, kNoDeadline);
    std::array<char, 64> drained{};
    if (entries[1].revents != 0) (void)!::read(wake_.read.number(), drained.data(), drained.size());
    bool changed = false;
    for (std::size_t i = connections_.size(); i-- > 0;) {
      const short events = entries[i + 2].revents;
      if (events == 0) continue;
      changed = true;
      if (serve(connections_[i], events)) continue;
      const std::lock_guard lock(mutex_);
      state_.remove_client(connections_[i].client);
      connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (entries[0].revents != 0) accept_one();
    if (!changed) continue;
    {
      const std::lock_guard lock(mutex_);
      news_.notify_all();
    }
    if (changed_) changed_(*this);
  }
}

void StoreServer::accept_one() {
  Descriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // Without descriptors the listener stays readable.
  if (!socket.open() && (errno == EMFILE || errno == ENFILE)) std::this_thread::sleep_for(kAcceptPause);
  if (!socket.open() || connections_.size() >= kMostStoreClients) return;
  const int yes = 1;
  (void)::setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  (void)::setsockopt(socket.number(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  const std::lock_guard lock(mutex_);
  connections_.push_back({std::move(socket), state_.add_client()});
}

bool StoreServer::serve(const Connection& connection, short events) {
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
    std::array<char, std::size_t{16} << 10> bytes{};
    const ssize_t count = ::recv(connection.socket.number(), bytes.data(), bytes.size(), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return false;
    try {
      const std::lock_guard lock(mutex_);
      if (count > 0) state_.receive(connection.client, {bytes.data(), static_cast<std::size_t>(count)});
    } catch (const Error& error) {
      log_warning(text_of("a connection to port ", port_, " is closed: ", error.what()));
      return false;
    }
  }
  const std::lock_guard lock(mutex_);
  std::string& output = state_.output(connection.client);
  if (output.empty()) return true;
  const ssize_t sent = ::send(connection.socket.number(), output.data(), output.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  output.erase(0, static_cast<std::size_t>(sent));
  return true;
}

}  // namespace hone
