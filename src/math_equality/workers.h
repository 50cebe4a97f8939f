// Comparisons in processes of their own, so that none can hang, exhaust or crash the run.
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
    std::chrono::milliseconds limit{5000};  // a comparison's processor time, which no other load changes
    std::chrono::milliseconds wait{20000};  // by the wall clock, for a worker that uses no processor at all
  };

  explicit MathWorkers(Options options);
  ~MathWorkers();

  // One outcome a comparison, in order. A comparison is bounded by its work (kMostWork). Should that not hold it, a
  // worker that passes the limit, stands still for `wait` or dies is killed and replaced. Only the comparison that it
  // was at suffers: by the limit it was too much work, otherwise it is tried again. What a worker found to be too much
  // work is remembered, so that several rewards of one completion, or many completions that are the same, spend it
  // once. May be called by several threads: each takes of the free workers what it can use, at least one. Throws Error
  // where no process can be started.
  [[nodiscard]] std::vector<MathOutcome> compare(std::span<const MathComparison> comparisons);
  [[nodiscard]] MathOutcome compare(const MathComparison& comparison);

  // The processes that live now, the fork server first: for tests.
  [[nodiscard]] std::vector<pid_t> processes();

 private:
  class Batch;

  [[nodiscard]] std::vector<ForkedWorker> take(std::size_t wanted);
  void give_back(std::vector<ForkedWorker> workers, std::size_t taken);
  void end(const ForkedWorker& worker);
  [[nodiscard]] ForkedWorker replaced(const ForkedWorker& worker);
  // The outcome of one that was too much work before.
  [[nodiscard]] std::optional<MathOutcome> remembered(const MathComparison& comparison);
  void remember(const MathComparison& comparison, const MathOutcome& outcome);

  Options options_;
  std::mutex mutex_;
  std::condition_variable freed_;
  ForkServer server_;
  std::vector<ForkedWorker> idle_;
  std::size_t free_ = 0;                         // workers that may be taken, idle or not yet started
  std::map<std::string, std::string> too_long_;  // fingerprints of comparisons; what was extracted
};

// The one pool that all rewards and tasks of this process share; it ends with the last of its users.
[[nodiscard]] std::shared_ptr<MathWorkers> shared_math_workers();

}  // namespace hone
