#include "system/local_connections.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "system/meeting.h"
#include "system/sockets.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;
using Connections = std::vector<Descriptor>;  // [ranks]

// Returns the TCP connections of each rank with each other one.
std::vector<Connections> connect_all(std::size_t ranks) {
  const Listener listener = listen_on(0, true);
  const sockaddr_in address = ipv4_address("127.0.0.1", listener.port, "the test");
  std::vector<Connections> all(ranks);
  for (Connections& each : all) each.resize(ranks);
  for (std::size_t a = 0; a < ranks; ++a) {
    for (std::size_t b = a + 1; b < ranks; ++b) {
      all[b][a] = connect_to(address, "the test", "", Clock::now() + std::chrono::minutes(1));
      all[a][b] = Descriptor(::accept4(listener.socket.number(), nullptr, nullptr, SOCK_CLOEXEC));
    }
  }
  return all;
}

// Calls use_local_connections() for all ranks, each on its thread after begin(rank).
void use_local(std::vector<Connections>& all, const std::function<void(int rank)>& begin) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    threads.emplace_back([&, rank] {
      begin(rank);
      use_local_connections(rank, all[static_cast<std::size_t>(rank)], Clock::now() + std::chrono::minutes(1));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int domain_of(const Descriptor& connection) {
  int domain = 0;
  socklen_t length = sizeof domain;
  EXPECT_EQ(::getsockopt(connection.number(), SOL_SOCKET, SO_DOMAIN, &domain, &length), 0);
  return domain;
}

// Expects that what a rank sends over its connection to another arrives on that one's connection to it.
void expect_paired(const std::vector<Connections>& all) {
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = 0; b < all.size(); ++b) {
      if (a == b) continue;
      const std::uint64_t sent = 100 * a + b;
      std::uint64_t received = 0;
      ASSERT_TRUE(send_struct(all[a][b].number(), sent));
      ASSERT_TRUE(receive_struct(all[b][a].number(), received, Clock::now() + std::chrono::minutes(1)));
      EXPECT_EQ(received, sent);
    }
  }
}

TEST(LocalConnections, RanksOfOneMachineUseThem) {
  std::vector<Connections> all = connect_all(4);
  use_local(all, [](int) {});
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = 0; b < all.size(); ++b) {
      if (a == b) continue;
      EXPECT_EQ(domain_of(all[a][b]), AF_UNIX) << a << " and " << b;
    }
  }
  expect_paired(all);
}

TEST(LocalConnections, ARankElsewhereKeepsItsOwn) {
  for (const std::size_t elsewhere : {0U, 1U, 2U}) {
    std::vector<Connections> all = connect_all(3);
    std::atomic<bool> moved = true;
    // In another network namespace, as on another machine, no rank finds the names of those of this one.
    use_local(all, [&](int rank) {
      if (static_cast<std::size_t>(rank) == elsewhere && ::unshare(CLONE_NEWNET) != 0) moved = false;
    });
    if (!moved) GTEST_SKIP() << "network namespaces need root";
    for (std::size_t a = 0; a < all.size(); ++a) {
      for (std::size_t b = 0; b < all.size(); ++b) {
        if (a == b) continue;
        const bool stays = a == elsewhere || b == elsewhere;
        EXPECT_EQ(domain_of(all[a][b]), stays ? AF_INET : AF_UNIX) << a << " and " << b;
      }
    }
    expect_paired(all);
  }
}

}  // namespace
}  // namespace hone
