// Tests of the connections between the ranks of a job, with a thread for each rank.
#include "system/peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "support/free_port.h"
#include "system/meeting.h"
#include "system/process.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using test::free_port;
using ::testing::HasSubstr;

JobPlace place_of(int rank, int size, std::uint16_t port, const std::string& key = "key") {
  return {.rank = rank, .size = size, .local_rank = rank, .local_size = size, .port = port, .key = key};
}

constexpr PeerLimits kPatient{.join = milliseconds(60000), .answer = milliseconds(60000)};

// Runs work(peers) as each rank and returns the messages of the exceptions, empty for a rank without one.
std::vector<std::string> run_ranks(int size, const std::function<void(Peers&)>& work,
                                   const PeerLimits& limits = kPatient) {
  const std::uint16_t port = free_port();
  std::vector<std::string> messages(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Peers peers(place_of(rank, size, port), limits);
        work(peers);
      } catch (const JobFailure& failure) {
        messages[static_cast<std::size_t>(rank)] =
            std::string(failure.is_reported_elsewhere() ? "(elsewhere) " : "") + failure.what();
      } catch (const std::exception& error) {
        messages[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return messages;
}

TEST(Peers, TextsSumsAndMaximaAreThoseOfAllRanks) {
  for (const int size : {2, 3, 4}) {
    const auto messages = run_ranks(size, [&](Peers& peers) {
      const std::string own(static_cast<std::size_t>(peers.rank()) * 3, static_cast<char>('a' + peers.rank()));
      const std::vector<std::string> all = peers.gather(own);
      for (int r = 0; r < size; ++r) {
        EXPECT_EQ(all[static_cast<std::size_t>(r)],
                  std::string(static_cast<std::size_t>(r) * 3, static_cast<char>('a' + r)));
      }
      EXPECT_EQ(peers.broadcast(peers.rank() == 0 ? "first" : "another"), "first");
      // A sum in another order than that of ranks would round differently.
      std::vector<double> values{peers.rank() == 0 ? 1.0 : 0x1p-53, static_cast<double>(peers.rank())};
      peers.sum(values);
      EXPECT_EQ(values, (std::vector<double>{1.0, size * (size - 1) / 2.0}));
      std::vector<double> most{static_cast<double>(-peers.rank())};
      peers.maximum(most);
      EXPECT_EQ(most[0], 0);
      EXPECT_TRUE(peers.any(peers.rank() == size - 1));
      EXPECT_FALSE(peers.any(false));
      peers.barrier();
    });
    EXPECT_EQ(messages, std::vector<std::string>(static_cast<std::size_t>(size)));
  }
}

TEST(Peers, ABroadcastToAGroupIsTheTextOfItsFirstRank) {
  const std::vector<std::vector<int>> groups{{0, 2}, {1, 3}, {1, 2, 3}, {0, 1, 2, 3}, {3}, {2, 3}};
  const auto messages = run_ranks(4, [&](Peers& peers) {
    for (const std::size_t length : {std::size_t{0}, std::size_t{5}, std::size_t{3} << 20}) {
      for (const std::vector<int>& group : groups) {
        if (std::ranges::find(group, peers.rank()) == group.end()) continue;
        const auto text_of_rank = [&](int rank) { return std::string(length, static_cast<char>('a' + rank)); };
        EXPECT_TRUE(peers.broadcast(text_of_rank(peers.rank()), group) == text_of_rank(group.front()))
            << length << " bytes of rank " << group.front() << " at rank " << peers.rank();
      }
    }
    peers.barrier();  // the connections agree on the number of exchanges
  });
  EXPECT_EQ(messages, std::vector<std::string>(4));
}

TEST(Peers, ABroadcastToAGroupEndsWithARankOfIt) {
  const std::vector<int> group{1, 2};
  for (const int ends : group) {
    const auto messages = run_ranks(3, [&](Peers& peers) {
      peers.barrier();
      if (peers.rank() == ends) return;
      if (peers.rank() == 0) return peers.wait_for(1);  // it takes no part, and ends after rank 1
      // A broadcast that hides the end is repeated up to here, and leaves no message.
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (std::chrono::steady_clock::now() < limit) (void)peers.broadcast("text", group);
    });
    const std::string& left = messages[static_cast<std::size_t>(3 - ends)];
    EXPECT_THAT(left, HasSubstr("rank " + std::to_string(ends) + " ("));
    EXPECT_THAT(left, HasSubstr("has ended"));
  }
}

TEST(Peers, LargeTransfersInBothDirectionsEnd) {
  const auto messages = run_ranks(3, [](Peers& peers) {
    std::vector<std::byte> out(std::size_t{5} << 20, static_cast<std::byte>(peers.rank() + 1));
    std::vector<std::vector<std::byte>> in(3, std::vector<std::byte>(out.size()));
    std::vector<Peers::Transfer> transfers;
    for (int r = 0; r < 3; ++r) {
      if (r != peers.rank()) transfers.push_back({r, out, in[static_cast<std::size_t>(r)]});
    }
    peers.exchange(transfers);
    for (const Peers::Transfer& transfer : transfers) {
      for (const std::byte byte : transfer.in) ASSERT_EQ(byte, static_cast<std::byte>(transfer.peer + 1));
    }
  });
  EXPECT_EQ(messages, std::vector<std::string>(3));
}

TEST(Peers, OneRankReportsARankThatEnds) {
  for (const int ends : {0, 1, 2}) {
    const auto messages = run_ranks(3, [&](Peers& peers) {
      peers.set_activity("step 7");
      peers.barrier();
      if (peers.rank() != ends) peers.barrier();
    });
    const int reporter = ends == 0 ? 1 : 0;
    for (int r = 0; r < 3; ++r) {
      const std::string& message = messages[static_cast<std::size_t>(r)];
      if (r == ends) {
        EXPECT_EQ(message, "");
        continue;
      }
      EXPECT_THAT(message, HasSubstr("rank " + std::to_string(ends) + " ("));
      EXPECT_THAT(message, HasSubstr("has ended (step 7)"));
      EXPECT_EQ(message.starts_with("(elsewhere) "), r != reporter) << message;
    }
  }
}

TEST(Peers, ARankThatFailsReportsItself) {
  const auto messages = run_ranks(3, [](Peers& peers) {
    peers.barrier();
    if (peers.rank() != 2) return peers.barrier();
    peers.fail("the disk is full");
    throw Error("the disk is full");
  });
  EXPECT_EQ(messages[2], "the disk is full");
  for (int r : {0, 1}) {
    EXPECT_THAT(messages[static_cast<std::size_t>(r)], ::testing::StartsWith("(elsewhere) rank 2 ("));
    EXPECT_THAT(messages[static_cast<std::size_t>(r)], HasSubstr("the disk is full"));
  }
}

TEST(Peers, ARankThatDoesNotAnswerIsNamed) {
  std::atomic<int> done{0};
  const auto messages = run_ranks(3,
                                  [&](Peers& peers) {
                                    peers.set_activity("step 3");
                                    // Rank 1 holds its connections but takes no part, as one that hangs.
                                    if (peers.rank() == 1) {
                                      while (done < 2) std::this_thread::sleep_for(milliseconds(5));
                                      return;
                                    }
                                    try {
                                      peers.barrier();
                                    } catch (...) {
                                      ++done;
                                      throw;
                                    }
                                  },
                                  {.join = milliseconds(60000), .answer = milliseconds(1000)});
  EXPECT_EQ(messages[1], "");
  EXPECT_THAT(messages[0], HasSubstr("rank 1 ("));
  EXPECT_THAT(messages[0], HasSubstr("has not answered for 1 s (step 3)"));
  EXPECT_THAT(messages[2], HasSubstr("rank 1 ("));
  EXPECT_TRUE(messages[2].starts_with("(elsewhere) ")) << messages[2];
}

TEST(Peers, RanksOfTheSameFailureKnowOfTheLowest) {
  std::mutex mutex;
  std::vector<int> speakers;
  (void)run_ranks(3, [&](Peers& peers) {
    peers.barrier();
    const bool below = peers.has_failed_below();
    if (peers.rank() > 0) {
      EXPECT_TRUE(below);
    }
    const std::scoped_lock lock(mutex);
    if (!below) speakers.push_back(peers.rank());
    peers.fail("no such file");
  });
  EXPECT_EQ(speakers, std::vector<int>{0});
}

TEST(Peers, ARankThatEndsBecauseOfAnotherReportsNothing) {
  (void)run_ranks(3, [](Peers& peers) {
    peers.barrier();
    if (peers.rank() == 0) return peers.fail("");
    EXPECT_EQ(peers.has_failed_below(), peers.rank() == 2);
    peers.fail("no such file");
  });
}

// Returns the message with which a process could not join.
std::string refusal(const JobPlace& place, milliseconds limit) {
  try {
    const Peers peers(place, {.join = limit});
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Peers, OtherKeysAndNumbersAreRefused) {
  const std::uint16_t port = free_port();
  std::string first;
  std::thread rank_0([&] { first = refusal(place_of(0, 2, port), milliseconds(6000)); });
  EXPECT_THAT(refusal(place_of(1, 2, port, "other"), milliseconds(30000)), HasSubstr("it has another job key"));
  EXPECT_THAT(refusal(place_of(1, 3, port), milliseconds(30000)), HasSubstr("one of 2 processes"));
  rank_0.join();
  EXPECT_THAT(first, HasSubstr("rank 1 of 2 did not join in time"));
  EXPECT_THAT(first, HasSubstr("was refused: rank 0 was started as one of 2 processes"));
}

TEST(Peers, APortInUseIsNamed) {
  const Listener taken = listen_on(0, true);
  EXPECT_THAT(refusal(place_of(0, 2, taken.port), milliseconds(1000)),
              HasSubstr("MASTER_PORT: cannot wait on port " + std::to_string(taken.port)));
}

TEST(Peers, RankZeroThatIsNotThereIsNamed) {
  EXPECT_THAT(refusal(place_of(1, 2, free_port()), milliseconds(300)), HasSubstr("rank 0 at 127.0.0.1:"));
}

// Sets environment variables until the end of the test; those of other launchers are removed.
class JobPlaceTest : public ::testing::Test {
 protected:
  JobPlaceTest() {
    for (const char* name : kNames) {
      before_.emplace_back(name, environment_variable(name));
      ::unsetenv(name);
    }
  }
  ~JobPlaceTest() override {
    for (const auto& [name, value] : before_) value.empty() ? ::unsetenv(name) : ::setenv(name, value.c_str(), 1);
  }
  static void set(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  }

 private:
  static constexpr const char* kNames[] = {"RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "HONE_JOB_KEY",
                                           "HONE_JOB_LISTENER",
                                           "TORCHELASTIC_RUN_ID",
                                           "TORCHELASTIC_USE_AGENT_STORE",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "PMIX_NAMESPACE",
                                           "SLURM_PROCID",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_LOCALID",
                                           "SLURM_STEP_TASKS_PER_NODE",
                                           "SLURM_JOB_ID",
                                           "SLURM_LAUNCH_NODE_IPADDR",
                                           "PMI_RANK",
                                           "PMI_SIZE"};
  std::vector<std::pair<const char*, std::string>> before_;
};

TEST_F(JobPlaceTest, NoLauncherIsOneProcess) {
  EXPECT_FALSE(job_place().is_job());
  set({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}});  // a batch script, not a step
  EXPECT_FALSE(job_place().is_job());
}

TEST_F(JobPlaceTest, TorchrunsVariables) {
  set({{"RANK", "3"},
       {"WORLD_SIZE", "4"},
       {"LOCAL_RANK", "1"},
       {"LOCAL_WORLD_SIZE", "2"},
       {"MASTER_ADDR", "node0"},
       {"MASTER_PORT", "1234"},
       {"TORCHELASTIC_RUN_ID", "run"}});
  const JobPlace place = job_place();
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 2);
  EXPECT_EQ(place.address, "node0");
  EXPECT_EQ(place.port, 1234);
  EXPECT_EQ(place.key, "run");
  set({{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"HONE_JOB_KEY", "own"}});
  EXPECT_EQ(job_place().port, 1235);  // the agent listens on MASTER_PORT
  EXPECT_EQ(job_place().key, "own");
}

TEST_F(JobPlaceTest, MpirunsAndSlurmsVariables) {
  set({{"OMPI_COMM_WORLD_RANK", "1"},
       {"OMPI_COMM_WORLD_SIZE", "2"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
       {"PMIX_NAMESPACE", "17"}});
  EXPECT_EQ(job_place().rank, 1);
  EXPECT_EQ(job_place().address, "127.0.0.1");
  EXPECT_EQ(job_place().port, kDefaultMasterPort);
  EXPECT_EQ(job_place().key, "17");
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  set({{"SLURM_PROCID", "5"},
       {"SLURM_STEP_NUM_TASKS", "8"},
       {"SLURM_LOCALID", "1"},
       {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
       {"SLURM_JOB_ID", "99"},
       {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}});
  EXPECT_EQ(job_place().rank, 5);
  EXPECT_EQ(job_place().size, 8);
  EXPECT_EQ(job_place().local_size, 4);
  EXPECT_EQ(job_place().address, "10.0.0.1");
  EXPECT_EQ(job_place().key, "99");
}

TEST_F(JobPlaceTest, MissingVariablesAreNamed) {
  const auto message = [] {
    try {
      (void)job_place();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  set({{"WORLD_SIZE", "2"}});
  EXPECT_THAT(message(), HasSubstr("RANK: is not set, but WORLD_SIZE is"));
  set({{"RANK", "2"}});
  EXPECT_THAT(message(), HasSubstr("RANK: expected a number from 0 to 1, saw '2'"));
  set({{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}});
  EXPECT_THAT(message(), HasSubstr("MASTER_ADDR: is not set"));
}

}  // namespace
}  // namespace hone
