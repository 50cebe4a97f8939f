// Threads of a test that are the ranks of a job with several kinds of groups.
#pragma once

#include <functional>

#include "support/rank_threads.h"
#include "train/run_collectives.h"

namespace hone::test {

// Runs work(mesh) on a thread for each of `size` ranks (support/rank_threads.h), with programs that have the groups of
// a job of this shape.
inline void run_mesh(int size, const JobShape& shape, const std::function<void(const Mesh& mesh)>& work) {
  run_ranks(size, [&](Collective& collective) {
    const Job job(&collective.peers(), shape);
    const RunCollectives groups(cpu_device(), job);
    work(job);
  });
}

}  // namespace hone::test
