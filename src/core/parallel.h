// Loops over threads: parallel_for for what computes, run_many for what waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace hone {

// Unless it was set: OMP_NUM_THREADS, else the cores that the process may run on.
[[nodiscard]] int thread_count();
void set_thread_count(int count);

// Calls run(context, 0) .. run(context, parts - 1), on as many threads as there are parts and free hands: what no other
// thread has begun the caller does itself, so that a core which is busy elsewhere delays one part at most. From inside
// a part, or while another thread is in here, all on the calling thread. `run` must not throw.
void run_parts(int parts, void (*run)(const void* context, int part), const void* context);

// Calls body(begin, end) over disjoint ranges that cover [0, count), at most thread_count() of them, none shorter than
// `grain` unless it is the last. What body computes must not depend on where the ranges are cut. body must not throw.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  if (count <= 0) return;
  const std::int64_t most = grain > 0 ? (count + grain - 1) / grain : count;
  const auto parts = static_cast<int>(most < thread_count() ? most : thread_count());
  if (parts <= 1) {
    body(std::int64_t{0}, count);
    return;
  }
  const auto range = [&](int part) { body(count * part / parts, count * (part + 1) / parts); };
  run_parts(parts, [](const void* context, int part) { (*static_cast<decltype(range)*>(context))(part); }, &range);
}

// Calls body(0) .. body(count - 1), begun in this order, on threads of their own: for what waits for other processes or
// machines more than it computes. `workers` at a time, the calling thread among them (0: thread_count()). Where a call
// throws, no further ones begin, and the first exception is thrown again.
void run_many(std::size_t count, int workers, const std::function<void(std::size_t)>& body);

}  // namespace hone
