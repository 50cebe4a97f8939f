#include "system/meeting.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "core/error.h"
#include "core/strings.h"
#include "system/local_connections.h"
#include "system/poll.h"
#include "system/streams.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<char, 8> kGreeting{'h', 'o', 'n', 'e', 'j', 'o', 'b', '1'};
constexpr auto kHelloLimit = std::chrono::seconds(5);  // for the hello of a process that has connected
constexpr const char* kNoRank = "MASTER_ADDR and MASTER_PORT must be those of rank 0, which must be running";

// Sent by a process when it connects, to rank 0 or to a rank below its own.
struct Hello {
  std::array<char, 8> greeting = kGreeting;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::uint32_t port = 0;  // on which it waits for ranks above its own
  std::array<char, 64> host{};
  std::array<char, 128> key{};
};

// Where a rank is, and rank 0's answer to a hello: its text is empty, or why the process was refused.
struct Seat {
  std::uint32_t address = 0;  // IPv4, in the network's byte order
  std::uint32_t port = 0;
  std::array<char, 64> host{};
};
struct Answer {
  std::array<char, 8> greeting = kGreeting;
  std::array<char, 120> refusal{};
};

template <std::size_t kSize>
void copy_text(std::array<char, kSize>& to, std::string_view text) {
  to.fill(0);
  std::ranges::copy(text.substr(0, kSize - 1), to.begin());
}
template <std::size_t kSize>
std::string text_in(const std::array<char, kSize>& from) {
  return printable_line(std::string(from.data(), ::strnlen(from.data(), kSize - 1)));
}

sockaddr_in address_of_first(const JobPlace& place) { return ipv4_address(place.address, place.port, "MASTER_ADDR"); }

bool is_loopback(const sockaddr_in& address) { return (ntohl(address.sin_addr.s_addr) >> 24) == 127; }

Hello hello_of(const JobPlace& place, std::uint16_t port) {
  Hello hello{.rank = place.rank, .size = place.size, .port = port};
  copy_text(hello.host, own_host());
  copy_text(hello.key, place.key);
  return hello;
}

// Accepts a connection and its hello; a closed descriptor if nothing useful came.
Descriptor accept_hello(int listener, Hello& hello, Clock::time_point deadline) {
  if (!wait_readable(listener, deadline)) return {};
  Descriptor connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection.open()) return {};
  const bool came = receive_struct(connection.number(), hello, std::min(deadline, Clock::now() + kHelloLimit));
  if (!came || hello.greeting != kGreeting) return {};
  configure(connection.number());
  return connection;
}

// Why a process may not join; empty if it may.
std::string refusal_of(const JobPlace& place, const Hello& hello, const std::vector<Descriptor>& connections) {
  if (text_in(hello.key) != printable_line(place.key.substr(0, hello.key.size() - 1))) {
    return "it has another job key";
  }
  if (hello.size != place.size) return text_of("rank 0 was started as one of ", place.size, " processes");
  if (hello.rank <= 0 || hello.rank >= place.size) return "there is no such rank";
  if (connections[static_cast<std::size_t>(hello.rank)].open()) return "another process has this rank";
  return {};
}

std::string missing_ranks(const std::vector<Descriptor>& connections) {
  std::vector<std::string> missing;
  for (std::size_t r = 1; r < connections.size(); ++r) {
    if (!connections[r].open()) missing.push_back(text_of(r));
  }
  return text_of(missing.size() == 1 ? "rank " : "ranks ", join(missing, ", "));
}

Seat seat_of(const Hello& hello, int connection) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  (void)::getpeername(connection, reinterpret_cast<sockaddr*>(&address), &length);
  return {.address = address.sin_addr.s_addr, .port = hello.port, .host = hello.host};
}

Meeting meet_as_first(const JobPlace& place, Clock::time_point deadline) {
  Listener own;
  if (place.listener >= 0) {
    own.socket = Descriptor(place.listener);
  } else {
    own = listen_on(place.port, is_loopback(address_of_first(place)));
  }
  const auto size = static_cast<std::size_t>(place.size);
  Meeting meeting{.connections = std::vector<Descriptor>(size), .hosts = std::vector<std::string>(size)};
  std::vector<Seat> seats(size);
  copy_text(seats[0].host, own_host());
  std::string refused;
  for (std::size_t joined = 1; joined < size;) {
    Hello hello;
    Descriptor connection = accept_hello(own.socket.number(), hello, deadline);
    if (!connection.open()) {
      if (Clock::now() < deadline) continue;
      throw Error("the job",
                  text_of(missing_ranks(meeting.connections), " of ", size, " did not join in time", refused),
                  "start all ranks with the same MASTER_ADDR and MASTER_PORT");
    }
    Answer answer;
    const std::string refusal = refusal_of(place, hello, meeting.connections);
    copy_text(answer.refusal, refusal);
    (void)send_struct(connection.number(), answer);
    if (!refusal.empty()) {
      refused = text_of("; rank ", hello.rank, " (", text_in(hello.host), ") was refused: ", refusal);
      continue;
    }
    const auto rank = static_cast<std::size_t>(hello.rank);
    seats[rank] = seat_of(hello, connection.number());
    meeting.connections[rank] = std::move(connection);
    ++joined;
  }
  for (std::size_t r = 0; r < size; ++r) {
    meeting.hosts[r] = text_in(seats[r].host);
    if (r > 0) (void)send_bytes(meeting.connections[r].number(), std::as_bytes(std::span(seats)));
  }
  return meeting;
}

Meeting meet_others(const JobPlace& place, Clock::time_point deadline) {
  const sockaddr_in first = address_of_first(place);
  const Listener own = listen_on(0, is_loopback(first));
  const std::string name = text_of("rank 0 at ", place.address, ":", place.port);
  const auto size = static_cast<std::size_t>(place.size);
  Meeting meeting{.connections = std::vector<Descriptor>(size), .hosts = std::vector<std::string>(size)};
  Descriptor connection = connect_to(first, name, kNoRank, deadline);
  const Hello hello = hello_of(place, own.port);
  Answer answer;
  if (!send_struct(connection.number(), hello) || !receive_struct(connection.number(), answer, deadline) ||
      answer.greeting != kGreeting) {
    throw Error(name, "does not answer as rank 0 of a job of hone",
                "another program may use the port: set MASTER_PORT to another one for all ranks");
  }
  if (const std::string refusal = text_in(answer.refusal); !refusal.empty()) {
    throw Error(text_of("rank ", place.rank, " (", own_host(), ")"), text_of("was refused by ", name, ": ", refusal),
                "all ranks need the same HONE_JOB_KEY and number of processes, and distinct ranks");
  }
  std::vector<Seat> seats(size);
  if (!receive_bytes(connection.number(), std::as_writable_bytes(std::span(seats)), deadline)) {
    throw Error(name, "has ended, or not all ranks joined in time", "its log says which ranks are missing");
  }
  for (std::size_t r = 0; r < size; ++r) meeting.hosts[r] = text_in(seats[r].host);
  meeting.connections[0] = std::move(connection);
  // Connect to the ranks below, then wait for those above. Ranks connect as soon as they have the table, so that none
  // waits for another in a circle: a connection is complete once the other end listens.
  for (int r = 1; r < place.rank; ++r) {
    const Seat& seat = seats[static_cast<std::size_t>(r)];
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = seat.address;
    address.sin_port = htons(static_cast<std::uint16_t>(seat.port));
    Descriptor below = connect_to(address, text_of("rank ", r, " (", text_in(seat.host), ")"), kNoRank, deadline);
    (void)send_struct(below.number(), hello);
    meeting.connections[static_cast<std::size_t>(r)] = std::move(below);
  }
  for (int missing = place.size - 1 - place.rank; missing > 0;) {
    Hello other;
    Descriptor above = accept_hello(own.socket.number(), other, deadline);
    if (above.open() && other.rank > place.rank && refusal_of(place, other, meeting.connections).empty()) {
      meeting.connections[static_cast<std::size_t>(other.rank)] = std::move(above);
      --missing;
    } else if (Clock::now() >= deadline) {
      throw Error("the job", text_of(missing, " ranks above ", place.rank, " did not connect in time"));
    }
  }
  return meeting;
}

}  // namespace

Listener listen_on(std::uint16_t port, bool loopback) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
  address.sin_port = htons(port);
  return listen_on(address, "MASTER_PORT", "set MASTER_PORT to a free port for all ranks");
}

Meeting meet(const JobPlace& place, Clock::time_point deadline) {
  Meeting meeting = place.rank == 0 ? meet_as_first(place, deadline) : meet_others(place, deadline);
  use_local_connections(place.rank, meeting.connections, deadline);
  for (const Descriptor& connection : meeting.connections) {
    if (connection.open()) set_nonblocking(connection.number());
  }
  return meeting;
}

}  // namespace hone
