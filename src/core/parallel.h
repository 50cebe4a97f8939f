// Parallel loops on CPU threads: parallel_for for computation, run_many for calls that mostly wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace hone {

// Number of threads of parallel loops: the value of set_thread_count, otherwise OMP_NUM_THREADS, otherwise the number
// of cores in the affinity mask of the process.
[[nodiscard]] int thread_count();
void set_thread_count(int count);

// Calls run(context, 0) .. run(context, parts - 1) on the calling thread and the workers of a pool, and returns when
// all calls have. The caller runs every part that no worker has claimed, so that a core which is busy with another
// process delays at most one part. Nested calls, and calls while another thread is in run_parts, run on the calling
// thread only. If calls throw, the exception of the lowest part is rethrown once no call is running.
void run_parts(int parts, void (*run)(const void* context, int part), const void* context);

// Calls body(begin, end) in parallel over disjoint ranges of about equal length that cover [0, count). There are
// min(thread_count(), ceil(count / grain)) ranges, so that a loop of `grain` iterations or fewer stays on the calling
// thread. The result must not depend on where the ranges are cut. Exceptions as in run_parts().
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

// Calls body(0) .. body(count - 1), started in this order, on dedicated threads, for calls that mostly wait for other
// processes or machines. `workers` is the number of concurrent calls, including the one on the calling thread (0:
// thread_count()). If a call throws, no further call starts, and the first exception is rethrown.
void run_many(std::size_t count, int workers, const std::function<void(std::size_t)>& body);

}  // namespace hone
