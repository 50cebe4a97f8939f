#include "rendezvous/store_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "system/poll.h"

namespace hone {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};

Listener listen_at(const std::string& host, std::uint16_t port) {
  const std::string where = text_of(host, ":", port);
  Listener listener = listen_on(ipv4_address(host, port, where), where, "choose another port, in TRL vllm_group_port");
  set_nonblocking(listener.socket.number());
  return listener;
}

}  // namespace

StoreServer::StoreServer(const std::string& host, std::uint16_t port, std::function<void(const StoreServer&)> changed,
                         std::chrono::milliseconds hello_limit)
    : changed_(std::move(changed)),
      hello_limit_(hello_limit),
      listener_(listen_at(host, port)),
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
    Deadline hello_deadline = kNoDeadline;
    entries = {{listener_.socket.number(), POLLIN, 0}, {wake_.read.number(), POLLIN, 0}};
    for (const Connection& connection : connections_) {
      const std::lock_guard lock(mutex_);
      if (!state_.is_valid(connection.client)) hello_deadline = std::min(hello_deadline, connection.hello_deadline);
      const bool has_output = !state_.output(connection.client).empty();
      entries.push_back({connection.socket.number(), static_cast<short>(has_output ? POLLIN | POLLOUT : POLLIN), 0});
    }
    (void)poll_until(entries, hello_deadline);
    std::array<char, 64> drained{};
    if (entries[1].revents != 0) (void)!::read(wake_.read.number(), drained.data(), drained.size());
    bool changed = false;
    for (std::size_t i = connections_.size(); i-- > 0;) {
      const short events = entries[i + 2].revents;
      if (events == 0 && !is_late(connections_[i])) continue;
      changed = true;
      if (events != 0 && serve(connections_[i], events)) continue;
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

bool StoreServer::is_late(const Connection& connection) const {
  const std::lock_guard lock(mutex_);
  return !state_.is_valid(connection.client) && std::chrono::steady_clock::now() >= connection.hello_deadline;
}

void StoreServer::accept_one() {
  Descriptor socket(::accept4(listener_.socket.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // Without descriptors the listener stays readable.
  if (!socket.open() && (errno == EMFILE || errno == ENFILE)) std::this_thread::sleep_for(kAcceptPause);
  if (!socket.open() || connections_.size() >= kMostStoreClients) return;
  configure(socket.number());
  const std::lock_guard lock(mutex_);
  connections_.push_back({std::move(socket), state_.add_client(), std::chrono::steady_clock::now() + hello_limit_});
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
      log_warning(text_of("a connection to port ", port(), " is closed: ", error.what()));
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
