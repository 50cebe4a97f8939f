#include "system/local_connections.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "system/poll.h"
#include "system/sockets.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSecretLimit = std::chrono::seconds(5);  // for the secret of a process that has connected

// Where a rank waits for the ranks above it: a name in the abstract namespace, which no other machine has, and what a
// rank sends to show that it has read this message, since any process of the machine can connect.
struct LocalPlace {
  std::array<std::uint8_t, 16> name{};
  std::array<std::uint8_t, 16> secret{};
};

struct LocalHello {
  std::array<std::uint8_t, 16> secret{};
  std::int32_t rank = 0;
};

struct LocalName {
  sockaddr_un address{};
  socklen_t length = 0;
};

LocalName local_name(const LocalPlace& place) {
  constexpr std::string_view kBegin = "hone-job-";
  LocalName name;
  name.address.sun_family = AF_UNIX;
  char* to = name.address.sun_path + 1;  // a first byte of 0: the abstract namespace
  std::memcpy(to, kBegin.data(), kBegin.size());
  std::memcpy(to + kBegin.size(), place.name.data(), place.name.size());
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + kBegin.size() + place.name.size());
  return name;
}

Descriptor local_socket() { return Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

// Listens on a new place; a closed descriptor, to which no rank connects, if the system has none.
Descriptor listen_locally(LocalPlace& place, int most_waiting) {
  Descriptor listener = local_socket();
  if (::getrandom(&place, sizeof place, 0) != sizeof place || !listener.open()) return {};
  const LocalName name = local_name(place);
  const auto* generic = reinterpret_cast<const sockaddr*>(&name.address);
  if (::bind(listener.number(), generic, name.length) != 0 || ::listen(listener.number(), most_waiting) != 0) return {};
  return listener;
}

// Returns a connection to a rank of this machine, closed if it is on another one.
Descriptor connect_locally(const LocalPlace& place, int rank) {
  Descriptor connection = local_socket();
  const LocalName name = local_name(place);
  if (!connection.open() ||
      ::connect(connection.number(), reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0) {
    return {};
  }
  if (!send_struct(connection.number(), LocalHello{.secret = place.secret, .rank = rank})) return {};
  return connection;
}

}  // namespace

void use_local_connections(int rank, std::span<Descriptor> connections, Clock::time_point deadline) {
  const auto own = static_cast<std::size_t>(rank);
  LocalPlace place;
  const Descriptor listener = listen_locally(place, static_cast<int>(connections.size()));
  for (const Descriptor& above : connections.subspan(own + 1)) (void)send_struct(above.number(), place);
  // A rank connects to all below it before it waits for those above, so that none waits for another in a circle.
  for (Descriptor& below : connections.first(own)) {
    LocalPlace other;
    if (!receive_struct(below.number(), other, deadline)) continue;
    Descriptor local = connect_locally(other, rank);
    const std::uint8_t connected = local.open() ? 1 : 0;
    (void)send_struct(below.number(), connected);
    if (connected != 0) below = std::move(local);
  }
  int expected = 0;
  for (const Descriptor& above : connections.subspan(own + 1)) {
    std::uint8_t connected = 0;
    if (receive_struct(above.number(), connected, deadline)) expected += connected;
  }
  while (expected > 0 && wait_readable(listener.number(), deadline)) {
    Descriptor connection(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    LocalHello hello;
    if (!connection.open() || !receive_struct(connection.number(), hello, Clock::now() + kSecretLimit)) continue;
    if (hello.secret != place.secret || hello.rank <= rank) continue;
    if (static_cast<std::size_t>(hello.rank) >= connections.size()) continue;
    connections[static_cast<std::size_t>(hello.rank)] = std::move(connection);
    --expected;
  }
}

}  // namespace hone
