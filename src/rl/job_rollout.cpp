#include "rl/job_rollout.h"

#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "core/interrupt.h"
#include "rl/rollout_message.h"

namespace hone {
namespace {

// The first character of what a rank sends: a message follows, or the reason why there is none.
constexpr char kMessage = '+';
constexpr char kFailed = '-';
constexpr char kInterrupted = '!';

// The end of the job because another rank, which reports it, has sent kFailed. That rank is still there.
class FailureElsewhere final : public JobFailure {
 public:
  explicit FailureElsewhere(const std::string& what) : JobFailure("", what, {}, true) {}
};

// Completes a rollout whose completions come from messages.
void set_scores(Rollout& rollout, std::size_t rewards, const RolloutOptions& options) {
  for (std::size_t r = 0; r < rewards; ++r) {
    RewardScores& scores = rollout.scores.emplace_back();
    for (const ScoredCompletion& judged : rollout.judged) scores.push_back(judged.rewards.at(r));
  }
  set_advantages(rollout, options);
}

// Returns what this rank sends, and in `failure` what make_message() has thrown. The loss of a rank passes.
std::string sent_by(const std::function<std::string()>& make_message, std::exception_ptr& failure) {
  try {
    return kMessage + make_message();
  } catch (const Interrupted&) {
    failure = std::current_exception();
    return {kInterrupted};
  } catch (const FailureElsewhere& error) {
    failure = std::current_exception();
    return kFailed + std::string(error.what());
  } catch (const JobFailure&) {
    throw;
  } catch (const std::exception& error) {
    failure = std::current_exception();
    return kFailed + std::string(error.what());
  }
}

// Throws what ends all ranks if one of them has sent no message.
void check_sent(std::span<const std::string> sent) {
  for (const std::string& each : sent) {
    if (each.front() == kFailed) throw FailureElsewhere(each.substr(1));
  }
  for (const std::string& each : sent) {
    if (each.front() == kInterrupted) throw Interrupted();
  }
}

// Returns the message of each rank. If making one fails or is interrupted, all ranks throw: the others wait for this
// one's message, and a checkpoint needs all of them.
std::vector<std::string> gather(const Job& job, const std::function<std::string()>& make_message) {
  std::exception_ptr failure;
  std::vector<std::string> sent = job.peers()->gather(sent_by(make_message, failure));
  if (failure) std::rethrow_exception(failure);
  check_sent(sent);
  for (std::string& each : sent) each.erase(0, 1);
  return sent;
}

}  // namespace

IndexRange share_of_rank(std::size_t count, const Job& job) {
  const auto rank = static_cast<std::size_t>(job.data_rank());
  const auto size = static_cast<std::size_t>(job.data_size());
  const std::size_t first = count * rank / size;
  return {first, count * (rank + 1) / size - first};
}

Rollout roll_out_in_group(const Job& job, std::size_t rewards, const RolloutOptions& options,
                          const std::function<Rollout()>& draw, const std::function<void()>& follow) {
  if (job.tensor_size() == 1) return draw();
  if (job.tensor_rank() != 0) {
    follow();
    const std::string sent = job.broadcast_in_tensor_group("");
    check_sent({&sent, 1});
    Rollout rollout;
    append_message(std::string_view(sent).substr(1), rollout);
    set_scores(rollout, rewards, options);
    return rollout;
  }
  Rollout rollout;
  std::exception_ptr failure;
  const auto make_message = [&] {
    rollout = draw();
    return to_message(rollout);
  };
  (void)job.broadcast_in_tensor_group(sent_by(make_message, failure));
  if (failure) std::rethrow_exception(failure);
  return rollout;
}

Rollout roll_out_together(const Job& job, std::size_t rewards, const RolloutOptions& options,
                          const std::function<Rollout()>& sample) {
  if (job.data_size() == 1) return sample();
  const std::vector<std::string> messages = gather(job, [&] {
    const Rollout own = sample();
    return job.tensor_rank() == 0 ? to_message(own) : std::string();
  });
  Rollout rollout;
  for (const std::string& message : messages) {
    if (!message.empty()) append_message(message, rollout);  // empty: that of its group's first rank is the same
  }
  set_scores(rollout, rewards, options);
  return rollout;
}

std::vector<DrawnTokens> draw_together(const Job& job, const std::function<std::vector<DrawnTokens>()>& draw) {
  if (job.size() == 1) return draw();
  const std::vector<std::string> messages = gather(job, [&] { return to_message(draw()); });
  std::vector<DrawnTokens> all;
  for (const std::string& message : messages) append_message(message, all);
  return all;
}

std::vector<float> gather_numbers(const Job& job, const std::vector<float>& own) {
  if (job.data_size() == 1) return own;
  const std::string_view bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(float));
  std::vector<float> all;
  for (const std::string& numbers : job.peers()->gather(job.tensor_rank() == 0 ? bytes : std::string_view())) {
    const std::size_t before = all.size();
    all.resize(before + numbers.size() / sizeof(float));
    if (!numbers.empty()) std::memcpy(all.data() + before, numbers.data(), numbers.size());
  }
  return all;
}

}  // namespace hone
