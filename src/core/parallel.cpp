#include "core/parallel.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

namespace hone {
namespace {

// Number of polls before a waiting thread sleeps: long enough for the gap between two kernels, short enough to release
// the core to other processes (docs/performance.md).
constexpr int kSpins = 2000;
constexpr int kMostThreads = 1024;

int default_thread_count() {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const int count = std::atoi(text);
    if (count >= 1) return std::min(count, kMostThreads);
  }
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return std::clamp(CPU_COUNT(&cores), 1, kMostThreads);
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
}

std::atomic<int>& configured_threads() {
  static std::atomic<int> count = default_thread_count();
  return count;
}

// Flag of the current thread: true while it runs parts, so that nested loops stay on it.
bool& inside() {
  static thread_local bool value = false;
  return value;
}

// The first failure of a job's parts: that of the lowest part, which does not depend on which thread was faster.
struct PartFailure {
  std::mutex mutex;
  int part = 0;
  std::exception_ptr error;

  // Takes the exception that is being handled.
  void note(int failed) {
    const std::scoped_lock lock(mutex);
    if (error && part < failed) return;
    part = failed;
    error = std::current_exception();
  }
};

// Pool of worker threads that runs one job at a time. A thread claims a part by decrementing open_, and only a thread
// that holds a claim reads body_, context_ and failure_. The job is replaced only after all its parts are finished, so
// a thread that wakes late finds either no part or a part of the next job, never a stale one. After a fork the child
// has no workers, and its calling thread claims every part.
class ThreadPool {
 public:
  void run(int parts, void (*body)(const void*, int), const void* context) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (inside() || !lock.owns_lock()) {
      for (int part = 0; part < parts; ++part) body(context, part);
      return;
    }
    grow(parts - 1);
    PartFailure failure;
    body_ = body;
    context_ = context;
    failure_ = &failure;
    unfinished_.store(parts, std::memory_order_relaxed);
    open_.store(parts, std::memory_order_release);  // publishes the job: claims load open_ with acquire
    open_.notify_all();
    inside() = true;
    while (run_one()) {
    }
    inside() = false;
    wait_until([](int unfinished) { return unfinished == 0; }, unfinished_);
    if (failure.error) std::rethrow_exception(failure.error);
  }

 private:
  // Starts workers until there are `workers` of them. They live as long as the process.
  void grow(int workers) {
    for (; workers_ < workers; ++workers_) {
      try {
        std::thread([this] { work(); }).detach();
      } catch (const std::system_error&) {
        return;  // the system has no more threads; the caller runs the remaining parts
      }
    }
  }

  [[noreturn]] void work() {
    inside() = true;
    for (;;) {
      wait_until([](int open) { return open > 0; }, open_);
      while (run_one()) {
      }
    }
  }

  // Claims and runs one part; returns false if all are claimed.
  bool run_one() {
    int open = open_.load(std::memory_order_relaxed);
    do {
      if (open == 0) return false;
    } while (!open_.compare_exchange_weak(open, open - 1, std::memory_order_acquire, std::memory_order_relaxed));
    try {
      body_(context_, open - 1);
    } catch (...) {
      failure_->note(open - 1);
    }
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_all();
    return true;
  }

  template <class Done>
  static void wait_until(const Done& done, const std::atomic<int>& value) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (done(value.load(std::memory_order_acquire))) return;
      _mm_pause();
    }
    for (;;) {
      const int seen = value.load(std::memory_order_acquire);
      if (done(seen)) return;
      value.wait(seen, std::memory_order_acquire);
    }
  }

  std::mutex mutex_;
  int workers_ = 0;
  void (*body_)(const void*, int) = nullptr;
  const void* context_ = nullptr;
  PartFailure* failure_ = nullptr;
  alignas(64) std::atomic<int> open_ = 0;        // parts not yet claimed
  alignas(64) std::atomic<int> unfinished_ = 0;  // parts not yet finished
};

// Workers may still wait on the pool when the process ends, so its destructor must do nothing.
static_assert(std::is_trivially_destructible_v<ThreadPool>);
ThreadPool& pool() {
  static ThreadPool instance;
  return instance;
}

}  // namespace

int thread_count() { return configured_threads().load(std::memory_order_relaxed); }
void set_thread_count(int count) { configured_threads().store(std::clamp(count, 1, kMostThreads)); }

void run_parts(int parts, void (*run)(const void*, int), const void* context) { pool().run(parts, run, context); }

void run_many(std::size_t count, int workers, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  {
    const auto wanted = static_cast<std::size_t>(workers > 0 ? workers : thread_count());
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(wanted, count); ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace hone
