// Threads of a test that are the ranks of a job on CPUs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "backend/collective.h"
#include "support/free_port.h"
#include "system/peers.h"

namespace hone::test {

// Runs work(collective) on a thread for each of `size` ranks; the collective is of all of them. Returns when all have
// ended. An exception ends the program.
inline void run_ranks(int size, const std::function<void(Collective&)>& work) {
  const std::uint16_t port = free_port();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Peers peers({.rank = rank, .size = size, .local_rank = rank, .local_size = size, .port = port});
      const std::unique_ptr<Collective> collective = make_collective(cpu_device(), peers);
      work(*collective);
      collective->barrier();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Runs work(rank) in the same way, with programs whose group of one kind are all ranks: &MeshCollectives::tensor.
inline void run_group(int size, Collective* MeshCollectives::* kind, const std::function<void(int rank)>& work) {
  run_ranks(size, [&](Collective& collective) {
    MeshCollectives mesh;
    mesh.*kind = &collective;
    const CollectiveScope scope(mesh);
    work(collective.rank());
  });
}

}  // namespace hone::test
