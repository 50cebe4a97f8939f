#include "rl/scorer.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace hone {
namespace {

bool begins_early(const Reward& reward) { return reward.scope == RewardScope::kCompletion; }

}  // namespace

Scorer::Scorer(std::span<const Reward> rewards, std::span<const RewardInput> inputs)
    : rewards_(rewards), inputs_(inputs), scores_(rewards.size(), RewardScores(inputs.size())) {
  if (std::ranges::any_of(rewards, begins_early)) thread_ = std::thread([this] { work(); });
}

Scorer::~Scorer() { end(true); }

void Scorer::add(std::size_t index) {
  {
    const std::lock_guard lock(mutex_);
    added_.push_back(index);
  }
  changed_.notify_one();
}

std::vector<RewardScores> Scorer::finish() {
  end(false);
  if (failure_) std::rethrow_exception(failure_);
  for (std::size_t r = 0; r < rewards_.size(); ++r) {
    if (begins_early(rewards_[r])) continue;
    scores_[r] = rewards_[r].score(inputs_);
  }
  return std::move(scores_);
}

// Ends the thread, after it has scored what has been added unless it is to be dropped.
void Scorer::end(bool drops) {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    if (drops) added_.clear();
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Scorer::work() {
  for (;;) {
    std::vector<std::size_t> indices;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || !added_.empty(); });
      indices = std::exchange(added_, {});
    }
    if (indices.empty()) return;
    try {
      score(indices);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      return;
    }
  }
}

void Scorer::score(std::span<const std::size_t> indices) {
  std::vector<RewardInput> inputs;
  inputs.reserve(indices.size());
  for (const std::size_t index : indices) inputs.push_back(inputs_[index]);
  for (std::size_t r = 0; r < rewards_.size(); ++r) {
    if (!begins_early(rewards_[r])) continue;
    const RewardScores scores = rewards_[r].score(inputs);
    HONE_ASSERT(scores.size() == indices.size(), rewards_[r].name, " gave ", scores.size(), " scores");
    for (std::size_t i = 0; i < indices.size(); ++i) scores_[r][indices[i]] = scores[i];
  }
}

}  // namespace hone
