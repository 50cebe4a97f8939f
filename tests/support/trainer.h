// The side of a trainer that sends weights, rank 1 of vLLM's StatelessProcessGroup, for tests of two rooms.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <string>

#include "core/error.h"
#include "rendezvous/pickles.h"
#include "rendezvous/store_client.h"

namespace hone::test {

// A deadline that no test reaches.
inline std::chrono::steady_clock::time_point soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

// ncclUniqueId of scripts/check_store.py: internal[i] = i - 64
inline UniqueId numbered_id() {
  UniqueId id{};
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(i + 192);
  return id;
}

// The barrier of StatelessProcessGroup in rank 1, which has counted rank 0's broadcasts. Source:
// vllm/distributed/utils.py
inline void trainer_barrier(StoreClient& store, int number) {
  const std::string pickle = store.get(text_of("/broadcast_from/0/", number), soon());
  const std::string name = pickle.substr(13, pickle.size() - 15);
  store.set(text_of("/arrival_", name, "_1"), "1");
  for (const int rank : {0, 1}) EXPECT_EQ(store.get(text_of("/arrival_", name, "_", rank), soon()), "1");
  store.set(text_of("/departure_", name, "_1"), "1");
}

}  // namespace hone::test
