#include "reward/sandbox/many.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/parallel.h"

namespace hone {

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
