// Both sides of vLLM's StatelessProcessGroup: the pickled id, joining, and the barriers of newer and older versions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "core/error.h"
#include "rendezvous/trainer_link.h"
#include "support/error_text.h"
#include "support/trainer.h"

namespace hone::test {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// pickle.dumps() of Python 3.11 for vLLM's ncclUniqueId with these bytes, without the bytes.
constexpr char kBefore[] =
    "\x80\x04\x95\xec\x00\x00\x00\x00\x00\x00\x00\x8c\x07_ctypes\x94\x8c\x09_unpickle\x94\x93\x94\x8c\x34"
    "vllm.distributed.device_communicators.pynccl_wrapper\x94\x8c\x0cncclUniqueId\x94\x93\x94}\x94"
    "C\x80";
constexpr char kAfter[] = "\x94\x86\x94\x86\x94R\x94.";

std::string recorded_pickle() {
  const UniqueId id = numbered_id();
  return std::string(kBefore, sizeof kBefore - 1) + std::string(reinterpret_cast<const char*>(id.data()), id.size()) +
         std::string(kAfter, sizeof kAfter - 1);
}

TEST(Pickle, AnIdIsWhatPythonWrites) {
  EXPECT_EQ(pickle_of(numbered_id()), recorded_pickle());
  EXPECT_EQ(unique_id_from_pickle(recorded_pickle()), numbered_id());
  std::string newer = recorded_pickle();
  newer[1] = 5;
  EXPECT_EQ(unique_id_from_pickle(newer), numbered_id());
  EXPECT_EQ(pickle_of("barrier_x-y"), std::string("\x80\x04\x95\x0f\x00\x00\x00\x00\x00\x00\x00\x8c\x0b"
                                                  "barrier_x-y\x94.",
                                                  26));
}

TEST(Pickle, OtherObjectsAreRefused) {
  const std::string pickle = recorded_pickle();
  for (std::size_t length = 0; length < pickle.size(); ++length)
    EXPECT_THROW((void)unique_id_from_pickle(pickle.substr(0, length)), Error) << length;
  EXPECT_THROW((void)unique_id_from_pickle(pickle + "."), Error);
  EXPECT_THAT(error_text([&] { (void)unique_id_from_pickle(pickle_of("text")); }), HasSubstr("another object"));
  std::string call = pickle;
  call[call.find("ncclUniqueId")] = 'N';
  EXPECT_THAT(error_text([&] { (void)unique_id_from_pickle(call); }), HasSubstr("another object"));
  std::string old = pickle;
  old[1] = 3;
  EXPECT_THAT(error_text([&] { (void)unique_id_from_pickle(old); }), HasSubstr("protocol is 3"));
  EXPECT_THAT(error_text([&] { (void)unique_id_from_pickle("\x80\x04\x63os\nsystem\n"); }), HasSubstr("opcode 99"));
}

TEST(TrainerLink, BothSidesAgreeOnTheId) {
  std::promise<void> joined;
  HostedLink host("127.0.0.1", 0, numbered_id(), [&] { joined.set_value(); });
  EXPECT_FALSE(host.is_lost()) << "no trainer has joined";
  {
    const JoinedLink trainer("127.0.0.1", host.port(), soon(), {});
    joined.get_future().get();
    EXPECT_EQ(trainer.id(), numbered_id());
    EXPECT_FALSE(host.is_lost());
    EXPECT_FALSE(trainer.is_lost());
  }
  EXPECT_THAT(error_text([&] { host.barrier(soon()); }), HasSubstr("has not come to the barrier"));
  EXPECT_TRUE(host.is_lost());
}

TEST(TrainerLink, MeetsTheBarriersOfNewerAndOlderVersions) {
  HostedLink host("127.0.0.1", 0, numbered_id(), [] {});
  StoreClient trainer("127.0.0.1", host.port(), soon());
  (void)trainer.add("init/", 1, soon());
  for (const int number : {1, 2}) {
    auto other = std::async(std::launch::async, [&] { trainer_barrier(trainer, number); });
    host.barrier(soon());
    other.get();
  }
  for (const int number : {0, 1}) {
    auto other = std::async(std::launch::async, [&] {
      (void)trainer.get(text_of("/broadcast_from/0/", number + 3), soon());
      trainer.set(text_of("/broadcast_from/1/", number), "\x80\x04N.");
    });
    host.barrier(soon());
    other.get();
  }
  StoreClient observer("127.0.0.1", host.port(), soon());
  EXPECT_EQ(observer.get("init/", soon()), "1");
  EXPECT_THAT(error_text([&] { host.barrier(Clock::now()); }), HasSubstr("has not come to the barrier"));
  // A key that is left holds another number, or a pickle, to which nothing can be added.
  for (const int number : {1, 2, 3, 4}) {
    std::vector<std::string> keys{text_of("/broadcast_from/0/", number), text_of("/broadcast_from/1/", number - 1)};
    for (const char* event : {"arrival", "departure"})
      for (const int rank : {0, 1}) keys.push_back(text_of("/", event, "_barrier_", number, "_", rank));
    for (const std::string& key : keys) EXPECT_EQ(observer.add(key, 0, soon()), 0) << key;
  }
}

}  // namespace
}  // namespace hone::test
