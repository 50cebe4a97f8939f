// The thread pool: OpenMP's.
#pragma once

#include <cstdint>

namespace hone {

[[nodiscard]] int thread_count();
void set_thread_count(int count);

// Calls body(begin, end) over disjoint ranges that cover [0, count), at most one a thread, none shorter than `grain`
// unless it is the last. What body computes must not depend on where the ranges are cut. body must not throw.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  if (count <= 0) return;
  const std::int64_t most = grain > 0 ? (count + grain - 1) / grain : count;
  const auto threads = static_cast<int>(most < thread_count() ? most : thread_count());
  if (threads <= 1) {
    body(std::int64_t{0}, count);
    return;
  }
#pragma omp parallel for schedule(static, 1) num_threads(threads)
  for (int part = 0; part < threads; ++part) {
    body(count * part / threads, count * (part + 1) / threads);
  }
}

}  // namespace hone
