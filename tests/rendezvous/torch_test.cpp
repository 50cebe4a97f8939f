// Both sides of a TCPStore next to torch's own. Skipped unless HONE_TEST_TORCH names a Python that has torch
// (HONE_CHECK_ALL=1 scripts/check_clients.sh sets it).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <string>

#include "core/error.h"
#include "rendezvous/trainer_link.h"
#include "support/paths.h"
#include "support/trainer.h"

namespace hone::test {
namespace {

class TorchStore : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("HONE_TEST_TORCH") == nullptr) GTEST_SKIP() << "HONE_TEST_TORCH is not set";
  }
  static std::future<int> start(const char* role, std::uint16_t port) {
    const std::string command = text_of(std::getenv("HONE_TEST_TORCH"), " ",
                                        (source_dir() / "scripts/check_store.py").string(), " ", role, " ", port);
    return std::async(std::launch::async, [command] { return std::system(command.c_str()); });
  }
};

TEST_F(TorchStore, ItsClientsUseOurServer) {
  std::promise<void> joined;
  HostedLink host("127.0.0.1", 0, numbered_id(), [&] { joined.set_value(); });
  std::future<int> torch = start("client", host.port());
  std::future<void> has_joined = joined.get_future();
  while (has_joined.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready)
    ASSERT_NE(torch.wait_for(std::chrono::seconds(0)), std::future_status::ready) << "the script has ended early";
  host.barrier(soon());
  host.barrier(soon());
  EXPECT_EQ(torch.get(), 0);
}

TEST_F(TorchStore, OurClientUsesItsServer) {
  const std::uint16_t port = StoreServer("127.0.0.1", 0).port();
  std::future<int> torch = start("server", port);
  {
    const JoinedLink link("127.0.0.1", port, soon(), {});
    EXPECT_EQ(link.id(), numbered_id());
    EXPECT_FALSE(link.is_lost());
    StoreClient("127.0.0.1", port, soon()).set("/hone_is_done", "1");
    EXPECT_EQ(torch.get(), 0);
    EXPECT_TRUE(link.is_lost());
  }
}

}  // namespace
}  // namespace hone::test
