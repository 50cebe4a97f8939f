// Pool of worker processes for comparisons, so that no comparison can block, exhaust or crash the run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "math_equality/comparison.h"
#include "system/fork_server.h"

namespace hone {

class MathWorkers {
 public:
  struct Options {
    int workers = 0;                        // 0: thread_count()
    std::chrono::milliseconds limit{5000};  // CPU time of one comparison, which other load does not change
    std::chrono::milliseconds wait{20000};  // time on the clock after which a worker that uses no CPU time is stalled
  };

  // Starts one worker, so that an error is reported immediately. Throws Error if no process can be started.
  explicit MathWorkers(Options options);
  ~MathWorkers();

  // Returns one outcome per comparison, in order. A comparison ends when it exceeds its work limit (kMostWork). As a
  // last resort, a worker that exceeds `limit`, stalls for `wait` or dies is killed and replaced. This affects only its
  // current comparison: after `limit` the outcome is too_long, otherwise the comparison is repeated. Comparisons that
  // exceed the work limit are cached, so that several rewards of one completion, or equal completions, compute them
  // once.
  //
  // Thread-safe: each call takes as many free workers as it can use and at least one. Throws Error if no process can be
  // started.
  [[nodiscard]] std::vector<MathOutcome> compare(std::span<const MathComparison> comparisons);
  [[nodiscard]] MathOutcome compare(const MathComparison& comparison);

  // Returns the ids of the fork server and of the idle workers, in this order, for tests.
  [[nodiscard]] std::vector<pid_t> processes();

 private:
  class Batch;

  [[nodiscard]] std::vector<ForkedWorker> take(std::size_t wanted);
  void give_back(std::vector<ForkedWorker> workers, std::size_t taken);
  void end(const ForkedWorker& worker);
  [[nodiscard]] ForkedWorker replaced(const ForkedWorker& worker);
  // Returns the cached outcome of a comparison that exceeded its work limit before.
  [[nodiscard]] std::optional<MathOutcome> remembered(const MathComparison& comparison);
  void remember(const MathComparison& comparison, const MathOutcome& outcome);

  Options options_;
  std::mutex mutex_;
  std::condition_variable freed_;
  ForkServer server_;
  std::vector<ForkedWorker> idle_;
  std::size_t free_ = 0;                         // workers that may be taken, idle or not started yet
  std::map<std::string, std::string> too_long_;  // fingerprint of a comparison -> extracted answer
};

// Returns the pool that all rewards and tasks of this process share; it ends when the last user releases it.
[[nodiscard]] std::shared_ptr<MathWorkers> shared_math_workers();

}  // namespace hone
