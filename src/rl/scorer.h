// Scores completions while others are still generated.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "reward/reward.h"

namespace hone {

// Rewards of RewardScope::kCompletion run on a thread of the scorer: on all completions that have been added since
// their last call. The others run in finish(), on all completions together. Scores depend on neither the order nor the
// time in which completions are added.
class Scorer {
 public:
  // Both must outlive the scorer; an input is read once it has been added.
  Scorer(std::span<const Reward> rewards, std::span<const RewardInput> inputs);
  // Waits for the reward that is running, and scores nothing more.
  ~Scorer();
  Scorer(const Scorer&) = delete;
  Scorer& operator=(const Scorer&) = delete;

  // Announces that the input at `index` is complete. Thread-safe.
  void add(std::size_t index);
  // Returns the scores [rewards][inputs] once all inputs have been added. Throws what a reward has thrown.
  [[nodiscard]] std::vector<RewardScores> finish();

 private:
  void work();
  void score(std::span<const std::size_t> indices);
  void end(bool drops);

  std::span<const Reward> rewards_;
  std::span<const RewardInput> inputs_;
  std::vector<RewardScores> scores_;  // [rewards][inputs]
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> added_;  // guarded by mutex_, as the two below: inputs that are not scored yet
  bool ends_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // none if no reward can begin early
};

}  // namespace hone
