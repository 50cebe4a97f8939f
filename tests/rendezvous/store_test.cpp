// TCPStore: its messages as torch's clients send them, its bounds, and a server and a client over loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <charconv>
#include <chrono>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "rendezvous/store_client.h"
#include "rendezvous/store_server.h"
#include "rendezvous/store_state.h"
#include "support/error_text.h"
#include "support/raw_client.h"
#include "support/trainer.h"
#include "system/poll.h"
#include "system/sockets.h"

namespace hone::test {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    bytes += static_cast<char>(value);
  }
  return bytes;
}

// Bytes that a client of torch 2.15 sent, and those of torch's answer (with and without libuv).
struct Exchange {
  const char* sent;
  const char* answered;
};
constexpr std::array kRecorded{
    Exchange{"00cef7853c0d206c0000", "206c0000"},                                                // validate, ping
    Exchange{"040500000000000000696e69742f0100000000000000", "0100000000000000"},                // add("init/", 1)
    Exchange{"0102000000000000002f6b02000000000000007631", ""},                                  // set("k", "v1")
    Exchange{"06010000000000000002000000000000002f6b", "00"},                                    // get("k"): wait ...
    Exchange{"0302000000000000002f6b", "02000000000000007631"},                                  // ... and get
    Exchange{"0402000000000000002f6e0300000000000000", "0300000000000000"},                      // add("n", 3)
    Exchange{"05020000000000000002000000000000002f6b03000000000000002f7a7a", "01"},              // check(["k", "zz"])
    Exchange{"0802000000000000002f6b", "0100000000000000"},                                      // delete_key("k")
    Exchange{"07", "0200000000000000"},                                                          // num_keys()
    Exchange{"0202000000000000002f630000000000000000010000000000000078", "010000000000000078"},  // compare_set
    Exchange{"0b020000000000000002000000000000002f6101000000000000003102000000000000002f62010000000000000032",
             ""},  // multi_set
    Exchange{"0a020000000000000002000000000000002f6102000000000000002f62",
             "010000000000000031010000000000000032"},                // multi_get
    Exchange{"0902000000000000002f6102000000000000007a7a", ""},      // append("a", "zz")
    Exchange{"06010000000000000006000000000000002f6e6f6b6579", ""},  // wait(["nokey"])
    Exchange{"0c", "01"},                                            // cancelled after its time
    Exchange{"0302000000000000002f61", "0300000000000000317a7a"},    // get("a")
};

TEST(Store, AnswersARecordedClientOfTorch) {
  StoreState store;
  const StoreState::Client client = store.add_client();
  for (const Exchange& exchange : kRecorded) {
    store.receive(client, from_hex(exchange.sent));
    EXPECT_EQ(std::exchange(store.output(client), {}), from_hex(exchange.answered)) << exchange.sent;
  }
  EXPECT_EQ(store.valid_clients(), 1u);
  EXPECT_EQ(store.get("/n"), "3");
}

TEST(Store, MessagesMayArriveInPieces) {
  StoreState store;
  const StoreState::Client client = store.add_client();
  std::string answered;
  for (const Exchange& exchange : kRecorded) {
    for (const char byte : from_hex(exchange.sent)) store.receive(client, {&byte, 1});
    answered += from_hex(exchange.answered);
  }
  EXPECT_EQ(store.output(client), answered);
}

TEST(Store, WritesWhatItReads) {
  for (const Exchange& exchange : kRecorded) {
    std::string rest = from_hex(exchange.sent);
    while (!rest.empty()) {
      StoreRequest request;
      const std::size_t length = read_store_request(rest, request);
      ASSERT_GT(length, 0u);
      EXPECT_EQ(bytes_of(request), rest.substr(0, length));
      rest.erase(0, length);
    }
  }
}

TEST(Store, AWaitEndsWhenTheLastKeyIsSet) {
  StoreState store;
  const StoreState::Client waiting = store.add_client();
  const StoreState::Client other = store.add_client();
  for (const StoreState::Client client : {waiting, other})
    store.receive(client, bytes_of({.query = StoreQuery::kValidate, .number = kStoreMagic}));
  store.receive(waiting, bytes_of({.query = StoreQuery::kWait, .keys = {"a", "b"}}));
  store.receive(other, bytes_of({.query = StoreQuery::kSet, .keys = {"a"}, .values = {"1"}}));
  EXPECT_EQ(store.output(waiting), "");
  store.receive(other, bytes_of({.query = StoreQuery::kAdd, .keys = {"b"}, .amount = 2}));
  EXPECT_EQ(store.output(waiting), std::string(1, '\0'));
}

TEST(Store, RefusesWhatIsBeyondItsBounds) {
  const auto refusal = [](const std::string& bytes, bool validates = true) {
    StoreState store;
    const StoreState::Client client = store.add_client();
    if (validates) store.receive(client, bytes_of({.query = StoreQuery::kValidate, .number = kStoreMagic}));
    return error_text([&] { store.receive(client, bytes); });
  };
  EXPECT_THAT(refusal(bytes_of({.query = StoreQuery::kPing}), false), HasSubstr("does not begin as torch's do"));
  EXPECT_THAT(refusal("GET / HTTP/1.1", false), HasSubstr("there is no query 71"));
  EXPECT_THAT(refusal("\x0e"), HasSubstr("there is no query 14"));
  EXPECT_THAT(refusal(from_hex("01ffffffffffffffff")), HasSubstr("a key has 18446744073709551615 bytes"));
  EXPECT_THAT(refusal(from_hex("0101000000000000006b0000010000000001")), HasSubstr("a value has"));
  EXPECT_THAT(refusal(from_hex("060001000000000001")), HasSubstr("keys"));
  EXPECT_THAT(refusal(bytes_of({.query = StoreQuery::kGet, .keys = {"none"}})), HasSubstr("there is no key \"none\""));
  EXPECT_THAT(refusal(bytes_of({.query = StoreQuery::kSet, .keys = {"n"}, .values = {"12x"}}) +
                      bytes_of({.query = StoreQuery::kAdd, .keys = {"n"}, .amount = 1})),
              HasSubstr("holds no number"));
  EXPECT_THAT(
      refusal(bytes_of({.query = StoreQuery::kAdd, .keys = {"n"}, .amount = 1}) +
              bytes_of({.query = StoreQuery::kAdd, .keys = {"n"}, .amount = std::numeric_limits<std::int64_t>::max()})),
      HasSubstr("overflows"));
  const std::string large(kMostValueBytes, 'x');
  std::string many;
  for (std::size_t i = 0; i <= kMostStoreBytes / kMostValueBytes; ++i)
    many += bytes_of({.query = StoreQuery::kSet, .keys = {text_of(i)}, .values = {large}});
  EXPECT_THAT(refusal(many), HasSubstr("would make"));
  std::string unread = bytes_of({.query = StoreQuery::kSet, .keys = {"k"}, .values = {large}});
  for (std::size_t i = 0; i <= kMostUnreadBytes / kMostValueBytes; ++i)
    unread += bytes_of({.query = StoreQuery::kGet, .keys = {"k"}});
  EXPECT_THAT(refusal(unread), HasSubstr("has not read"));
}

TEST(Store, AServerAndItsClients) {
  StoreServer server("127.0.0.1", 0);
  {
    StoreClient client("127.0.0.1", server.port(), soon());
    EXPECT_EQ(client.add("init/", 1, soon()), 1);
    EXPECT_EQ(server.clients(), 1u);
    client.set("/k", "value");
    EXPECT_EQ(client.get("/k", soon()), "value");
    EXPECT_EQ(server.get("/k"), "value");
    auto waiting = std::async(std::launch::async, [&] { return client.get("/later", soon()); });
    server.set("/later", "now");
    EXPECT_EQ(waiting.get(), "now");
    const std::string key = "/k";
    EXPECT_TRUE(server.wait_for_any({&key, 1}, soon()));
    EXPECT_FALSE(client.is_closed());
  }
  const std::string never = "/never";
  EXPECT_FALSE(server.wait_for_any({&never, 1}, soon())) << "the last client has left";
  EXPECT_EQ(server.clients(), 0u);
}

TEST(Store, AClientSaysWhyItFails) {
  std::uint16_t port = 0;
  std::unique_ptr<StoreClient> client;
  {
    StoreServer server("127.0.0.1", 0);
    port = server.port();
    EXPECT_THAT(error_text([&] { StoreServer("127.0.0.1", port); }), HasSubstr("cannot wait on port"));
    client = std::make_unique<StoreClient>("127.0.0.1", port, soon());
    EXPECT_THAT(error_text([&] { (void)client->get("/never", Clock::now()); }), HasSubstr("does not answer in time"));
  }
  EXPECT_TRUE(client->is_closed());
  EXPECT_THAT(error_text([&] { (void)client->add("n", 1, soon()); }), HasSubstr("closed the connection"));
  EXPECT_THAT(error_text([&] { StoreClient("127.0.0.1", port, Clock::now()); }), HasSubstr("cannot be reached"));
  EXPECT_THAT(error_text([&] { StoreClient("no such host", 1, Clock::now()); }), HasSubstr("cannot find no such host"));
}

// Clients beyond the most that a server takes; whether they are torch's or silent.
TEST(Store, AClientMoreThanTheMostIsRefusedUntilOneLeaves) {
  StoreServer server("127.0.0.1", 0);
  std::vector<std::unique_ptr<StoreClient>> clients;
  const auto connect = [&] { clients.push_back(std::make_unique<StoreClient>("127.0.0.1", server.port(), soon())); };
  for (std::size_t i = 0; i < kMostStoreClients; ++i) connect();
  EXPECT_EQ(server.clients(), kMostStoreClients);
  EXPECT_THAT(error_text(connect), HasSubstr("closed the connection"));
  clients.pop_back();
  while (server.clients() == kMostStoreClients) std::this_thread::yield();
  EXPECT_EQ(error_text(connect), "no error");
  EXPECT_EQ(clients.back()->add("n", 1, soon()), 1);
}

TEST(Store, SilentConnectionsLoseTheirPlaces) {
  StoreServer server("127.0.0.1", 0, {}, std::chrono::milliseconds(50));
  std::vector<std::unique_ptr<RawClient>> silent;
  for (std::size_t i = 0; i < kMostStoreClients; ++i) silent.push_back(std::make_unique<RawClient>(server.port()));
  for (const auto& client : silent) EXPECT_EQ(client->rest(), "") << "it waits until the server closes the connection";
  StoreClient trainer("127.0.0.1", server.port(), soon());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(trainer.add("n", 1, soon()), 1) << "a trainer may be silent as long as it likes";
}

TEST(Store, AClientStopsWaitingForAMachineThatDropsPackets) {
  const sockaddr_in address = ipv4_address("127.0.0.1", 0, "test");
  const Listener listener = listen_on(address, "test", "");
  ASSERT_EQ(::listen(listener.socket.number(), 0), 0);
  // A queue that is full drops what arrives.
  const sockaddr_in full = ipv4_address("127.0.0.1", listener.port, "test");
  std::vector<Descriptor> waiting;
  for (bool drops = false; !drops;) {
    waiting.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(waiting.back().number(), reinterpret_cast<const sockaddr*>(&full), sizeof full);
    pollfd entry{waiting.back().number(), POLLOUT, 0};
    drops = poll_until({&entry, 1}, Clock::now() + std::chrono::milliseconds(200)) == 0;
    ASSERT_LT(waiting.size(), 10U);
  }
  const Clock::time_point stop = Clock::now() + std::chrono::milliseconds(100);
  EXPECT_THAT(
      error_text([&] { StoreClient("127.0.0.1", listener.port, soon(), [&] { return Clock::now() >= stop; }); }),
      HasSubstr("cannot be reached: Operation canceled"));
  EXPECT_THAT(error_text([&] { StoreClient("127.0.0.1", listener.port, stop); }),
              HasSubstr("cannot be reached: Connection timed out"));
  EXPECT_LT(Clock::now(), stop + std::chrono::seconds(60));
}

TEST(Store, APortThatAcceptsAndSaysNothingIsLate) {
  const Listener listener = listen_on(ipv4_address("127.0.0.1", 0, "test"), "test", "");
  EXPECT_THAT(
      error_text([&] { StoreClient("127.0.0.1", listener.port, Clock::now() + std::chrono::milliseconds(100)); }),
      HasSubstr("does not answer in time"));
}

}  // namespace
}  // namespace hone::test
