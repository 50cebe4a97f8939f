// Addresses of this machine and of others.
#include "system/sockets.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace hone::test {
namespace {

TEST(Sockets, AnAddressIsFourNumbers) {
  const sockaddr_in address = ipv4_address("192.0.2.17", 80, "server");
  EXPECT_EQ(numbers_of(address), "192.0.2.17");
  EXPECT_EQ(ntohs(address.sin_port), 80);
  EXPECT_THROW((void)ipv4_address("[::1]", 80, "server"), Error);
}

// A server on this machine finds the trainer at an address that no other machine reaches.
TEST(Sockets, TheAddressTowardsLoopbackIsOnIt) {
  for (const char* host : {"127.0.0.1", "localhost"})
    EXPECT_EQ(numbers_of(address_towards(ipv4_address(host, 0, host), host)), "127.0.0.1") << host;
}

}  // namespace
}  // namespace hone::test
