#include "system/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "system/poll.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{50};
constexpr int kMostWaiting = 1024;  // connections that have not been accepted

// Waits for the result of a connect() that is under way. Returns its errno, 0 if the socket is connected, and
// ETIMEDOUT or ECANCELED if the wait was ended before.
int result_of_connect(int connection, Clock::time_point deadline, const std::function<bool()>& stops) {
  for (;;) {
    pollfd entry{connection, POLLOUT, 0};
    if (poll_until({&entry, 1}, std::min(deadline, Clock::now() + kPause)) > 0) break;
    if (stops && stops()) return ECANCELED;
    if (Clock::now() >= deadline) return ETIMEDOUT;
  }
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(connection, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

}  // namespace

sockaddr_in ipv4_address(const std::string& host, std::uint16_t port, const std::string& where) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  // "localhost" is this machine (RFC 6761), also where no file or server of names knows it, as in a bare container.
  const std::string name = host == "localhost" ? "127.0.0.1" : host;
  const int status = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (status != 0) throw Error(where, text_of("cannot find ", host, ": ", ::gai_strerror(status)));
  sockaddr_in address = *reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  ::freeaddrinfo(found);
  address.sin_port = htons(port);
  return address;
}

sockaddr_in address_towards(sockaddr_in other, const std::string& where) {
  constexpr std::uint16_t kAnyPort = 9;
  other.sin_port = htons(kAnyPort);
  // connect() of a datagram socket chooses a route and sends nothing.
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  socklen_t length = sizeof own;
  if (!socket.open() || ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&other), sizeof other) != 0 ||
      ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
    throw Error(where, text_of("cannot be reached from this machine: ", std::strerror(errno)));
  own.sin_port = 0;
  return own;
}

std::string numbers_of(const sockaddr_in& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  (void)::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  return text.data();
}

std::string own_host() {
  std::array<char, 64> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != 0 ? name.data() : "this machine";
}

void configure(int connection) {
  const auto set = [&](int level, int option, int value) {
    (void)::setsockopt(connection, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

Descriptor connect_to(const sockaddr_in& address, const std::string& name, const std::string& fix,
                      Clock::time_point deadline, const std::function<bool()>& stops) {
  for (;;) {
    // A machine that drops packets would keep a blocking connect() for two minutes.
    Descriptor connection(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    int error = 0;
    if (!connection.open() || ::connect(connection.number(), generic, sizeof address) != 0) error = errno;
    if (error == EINPROGRESS) error = result_of_connect(connection.number(), deadline, stops);
    if (error == 0) {
      (void)::fcntl(connection.number(), F_SETFL, 0);  // blocking
      configure(connection.number());
      return connection;
    }
    if (Clock::now() >= deadline || (stops && stops()))
      throw Error(name, text_of("cannot be reached: ", std::strerror(error)), fix);
    std::this_thread::sleep_for(kPause);
  }
}

Listener listen_on(sockaddr_in address, const std::string& where, const std::string& fix) {
  Listener listener{.socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  const int number = listener.socket.number();
  const int reuse = 1;
  (void)::setsockopt(number, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(number, generic, sizeof address) != 0 || ::listen(number, kMostWaiting) != 0) {
    const char* const reason = std::strerror(errno);
    throw Error(where, text_of("cannot wait on port ", ntohs(address.sin_port), " of ", own_host(), ": ", reason), fix);
  }
  socklen_t length = sizeof address;
  (void)::getsockname(number, generic, &length);
  listener.port = ntohs(address.sin_port);
  return listener;
}

bool send_bytes(int connection, std::span<const std::byte> bytes) {
  return ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

bool receive_bytes(int connection, std::span<std::byte> bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    if (!wait_readable(connection, deadline)) return false;
    const ssize_t count = ::recv(connection, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace hone
