#include "math_equality/workers.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/parallel.h"
#include "system/poll.h"
#include "system/processor_time.h"
#include "system/streams.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostAtHand = 8;         // comparisons in the queue of a worker, so that it never waits
constexpr std::size_t kMostShown = 4096;       // bytes of an extracted answer that are returned
constexpr int kMostStalls = 8;                 // stalled workers per comparison; the wait doubles each time
constexpr std::size_t kMostRemembered = 4096;  // cached comparisons that exceeded the work limit

// --- Messages on the channel

struct RequestHeader {
  std::uint64_t gold_size = 0;
  std::uint64_t text_size = 0;
  AnswerRule gold_rule;
  AnswerRule text_rule;
  bool bare_gold = false;
  bool strict = false;
};

struct ReplyHeader {
  MathVerdict verdict = MathVerdict::kFailed;
  std::uint32_t size = 0;
};

template <class Header>
void append(std::string& buffer, const Header& header) {
  buffer.append(reinterpret_cast<const char*>(&header), sizeof header);
}
template <class Header>
std::span<char> bytes_of(Header& header) {
  return {reinterpret_cast<char*>(&header), sizeof header};
}

bool same_rule(const AnswerRule& a, const AnswerRule& b) {
  return a.first_match_only == b.first_match_only && a.repair == b.repair && a.unit_in_prose == b.unit_in_prose &&
         a.extraction.expressions == b.extraction.expressions && a.extraction.unanchored == b.extraction.unanchored &&
         a.extraction.boxed_priority == b.extraction.boxed_priority;
}

// Cache of the last gold answer: completions of one group are adjacent and share it.
class Golds {
 public:
  const std::optional<MathAnswer>& of(const MathComparison& comparison) {
    const bool known =
        known_ && text_ == comparison.gold && bare_ == comparison.bare_gold && same_rule(rule_, comparison.gold_rule);
    if (!known) {
      known_ = false;
      gold_ = read_gold(comparison);
      text_ = comparison.gold;
      bare_ = comparison.bare_gold;
      rule_ = comparison.gold_rule;
      known_ = true;
    }
    return gold_;
  }

 private:
  bool known_ = false;
  bool bare_ = false;
  std::string text_;
  AnswerRule rule_;
  std::optional<MathAnswer> gold_;
};

// Main loop of a worker, until its channel closes.
void serve_comparisons(int channel) {
  Golds golds;
  for (RequestHeader header; read_all(channel, bytes_of(header));) {
    MathOutcome outcome;
    std::string texts;
    try {
      texts.resize(header.gold_size + header.text_size);
      if (!read_all(channel, texts)) return;
      const std::string_view both(texts);
      const MathComparison comparison{both.substr(0, header.gold_size),
                                      both.substr(header.gold_size),
                                      header.gold_rule,
                                      header.text_rule,
                                      header.bare_gold,
                                      header.strict};
      outcome = compare_with(golds.of(comparison), comparison);
      outcome.extracted.resize(std::min(outcome.extracted.size(), kMostShown));
    } catch (const std::bad_alloc&) {
      return;  // the client sees that the process has ended
    }
    std::string reply;
    append(reply, ReplyHeader{outcome.verdict, static_cast<std::uint32_t>(outcome.extracted.size())});
    reply += outcome.extracted;
    if (!write_all(channel, reply)) return;
  }
}

constexpr ForkService kComparisons{.name = "comparisons", .memory_bytes = 4ULL << 30, .serve = serve_comparisons};

__attribute__((constructor)) void become_comparison_server_if_asked() { become_fork_server_if_asked(kComparisons); }

}  // namespace

// --- One call of compare()

class MathWorkers::Batch {
 public:
  Batch(MathWorkers& owner, std::span<const MathComparison> comparisons)
      : owner_(owner),
        comparisons_(comparisons),
        outcomes_(comparisons.size()),
        died_(comparisons.size()),
        stalls_(comparisons.size()) {}

  std::vector<MathOutcome> run() {
    std::vector<ForkedWorker> workers = owner_.take(comparisons_.size());
    const std::size_t taken = workers.size();
    most_at_hand_ = std::clamp<std::size_t>(comparisons_.size() / (2 * taken), 1, kMostAtHand);
    try {
      for (ForkedWorker& worker : workers) lanes_.emplace_back().worker = std::move(worker);
      while (finished_ < comparisons_.size()) step();
    } catch (...) {
      give_back(taken);
      throw;
    }
    give_back(taken);
    return std::move(outcomes_);
  }

 private:
  // A worker and its queue.
  struct Lane {
    ForkedWorker worker;
    std::deque<std::size_t> at_hand;  // comparisons that have been sent or are being sent, in order
    std::string out;                  // requests
    std::size_t sent = 0;             // bytes of `out` that have been sent
    std::string in;                   // bytes received and not parsed yet
    // The first comparison in the queue:
    std::chrono::nanoseconds begin{0};  // CPU time of the worker when the comparison began
    std::chrono::nanoseconds seen{0};   // CPU time of the worker at the last check
    Clock::time_point moved;            // last check at which the CPU time had grown
    Clock::time_point look;             // time of the next check
  };

  // Returns the workers to the pool. A worker with comparisons in its queue, after an exception, is killed instead.
  void give_back(std::size_t taken) {
    std::vector<ForkedWorker> workers;
    for (Lane& lane : lanes_) {
      if (!lane.worker.channel.open()) continue;
      if (lane.at_hand.empty()) {
        workers.push_back(std::move(lane.worker));
      } else {
        owner_.end(lane.worker);
      }
    }
    owner_.give_back(std::move(workers), taken);
  }

  // Returns the next comparison, first from those that must be repeated; nothing if there is none.
  std::optional<std::size_t> next_task() {
    if (!again_.empty()) {
      const std::size_t task = again_.front();
      again_.pop_front();
      return task;
    }
    return next_ < comparisons_.size() ? std::optional(next_++) : std::nullopt;
  }

  void fill(Lane& lane) {
    while (lane.at_hand.size() < most_at_hand_) {
      const std::optional<std::size_t> task = next_task();
      if (!task) return;
      if (lane.sent == lane.out.size()) {
        lane.out.clear();
        lane.sent = 0;
      }
      const MathComparison& comparison = comparisons_[*task];
      append(lane.out, RequestHeader{comparison.gold.size(), comparison.text.size(), comparison.gold_rule,
                                     comparison.text_rule, comparison.bare_gold, comparison.strict});
      lane.out.append(comparison.gold).append(comparison.text);
      if (lane.at_hand.empty()) begin_first(lane);
      lane.at_hand.push_back(*task);
    }
  }

  void step() {
    std::vector<pollfd> ready;
    Clock::time_point earliest = kNoDeadline;
    for (Lane& lane : lanes_) {
      fill(lane);
      const bool waiting = !lane.at_hand.empty();
      const auto events = static_cast<short>(lane.sent < lane.out.size() ? POLLIN | POLLOUT : POLLIN);
      ready.push_back({waiting ? lane.worker.channel.number() : -1, events, 0});
      if (waiting) earliest = std::min(earliest, lane.look);
    }
    poll_until(ready, earliest);
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[i];
      if (lane.at_hand.empty()) continue;
      const short events = ready[i].revents;
      if ((events & POLLOUT) != 0) send_some(lane);
      const bool alive = (events & (POLLIN | POLLHUP | POLLERR)) == 0 || receive(lane);
      if (!alive) {
        replace(lane, died_[lane.at_hand.front()]++ == 0 ? std::nullopt : std::optional(MathVerdict::kFailed));
      } else if (!lane.at_hand.empty() && Clock::now() >= lane.look) {
        look_at(lane);
      }
    }
  }

  void begin_first(Lane& lane) const {
    lane.begin = lane.seen = processor_time_of(lane.worker.id);
    lane.moved = Clock::now();
    lane.look = lane.moved + std::min(owner_.options_.limit, owner_.options_.wait);
  }

  // Checks the worker's CPU time. Only CPU time leads to the verdict too_long: a worker without CPU time may be waiting
  // on a busy machine or be stopped.
  void look_at(Lane& lane) {
    const auto now = Clock::now();
    const std::chrono::nanoseconds used = processor_time_of(lane.worker.id);
    if (used - lane.begin >= owner_.options_.limit) return replace(lane, MathVerdict::kTooLong);
    if (used != lane.seen) lane.moved = now;
    lane.seen = used;
    int& stalls = stalls_[lane.at_hand.front()];
    const auto wait = owner_.options_.wait * (1 << stalls);
    if (now >= lane.moved + wait) {
      return replace(lane, ++stalls < kMostStalls ? std::nullopt : std::optional(MathVerdict::kFailed));
    }
    const auto until_limit = std::chrono::ceil<std::chrono::milliseconds>(owner_.options_.limit - (used - lane.begin));
    lane.look = std::min(now + until_limit, lane.moved + wait);
  }

  static void send_some(Lane& lane) {
    const ssize_t count =
        send(lane.worker.channel.number(), lane.out.data() + lane.sent, lane.out.size() - lane.sent, MSG_NOSIGNAL);
    if (count > 0) lane.sent += static_cast<std::size_t>(count);
  }

  // Reads replies. Returns false if the worker has died.
  bool receive(Lane& lane) {
    std::array<char, 1 << 14> bytes;
    const ssize_t count = recv(lane.worker.channel.number(), bytes.data(), bytes.size(), 0);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    lane.in.append(bytes.data(), static_cast<std::size_t>(count));
    std::size_t at = 0;
    for (ReplyHeader header; lane.in.size() - at >= sizeof header;) {
      std::memcpy(&header, lane.in.data() + at, sizeof header);
      if (header.size > kMostShown || lane.at_hand.empty()) return false;
      if (lane.in.size() - at < sizeof header + header.size) break;
      MathOutcome outcome{header.verdict, lane.in.substr(at + sizeof header, header.size)};
      if (header.verdict == MathVerdict::kTooLong) owner_.remember(comparisons_[lane.at_hand.front()], outcome);
      finish(lane, std::move(outcome));
      at += sizeof header + header.size;
    }
    lane.in.erase(0, at);
    return true;
  }

  void finish(Lane& lane, MathOutcome outcome) {
    outcomes_[lane.at_hand.front()] = std::move(outcome);
    lane.at_hand.pop_front();
    begin_first(lane);
    ++finished_;
  }

  // Replaces a worker. The first comparison of its queue ends with the verdict, if there is one. All others are
  // repeated. The caller gives no verdict after the first death of a worker, because the machine may have been short of
  // memory.
  void replace(Lane& lane, std::optional<MathVerdict> verdict) {
    if (verdict) finish(lane, {*verdict, {}});
    again_.insert(again_.end(), lane.at_hand.begin(), lane.at_hand.end());
    const ForkedWorker worker = std::move(lane.worker);
    lane = Lane{};
    lane.worker = owner_.replaced(worker);
  }

  MathWorkers& owner_;
  std::span<const MathComparison> comparisons_;
  std::vector<MathOutcome> outcomes_;
  std::vector<int> died_;    // [comparisons] workers that died
  std::vector<int> stalls_;  // [comparisons] workers that stalled
  std::size_t most_at_hand_ = 1;
  std::deque<Lane> lanes_;
  std::deque<std::size_t> again_;
  std::size_t next_ = 0;
  std::size_t finished_ = 0;
};

// --- The pool

MathWorkers::MathWorkers(Options options) : options_(options), server_(kComparisons) {
  if (options_.workers <= 0) options_.workers = thread_count();
  free_ = static_cast<std::size_t>(options_.workers);
  idle_.push_back(server_.fork());  // reports an error of the system immediately
}

MathWorkers::~MathWorkers() = default;

std::vector<ForkedWorker> MathWorkers::take(std::size_t wanted) {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [&] { return free_ > 0; });
  const std::size_t count = std::min(std::max<std::size_t>(wanted, 1), free_);
  std::vector<ForkedWorker> taken;
  while (taken.size() < count) {
    if (idle_.empty()) idle_.push_back(server_.fork());
    taken.push_back(std::move(idle_.back()));
    idle_.pop_back();
  }
  free_ -= count;
  return taken;
}

void MathWorkers::give_back(std::vector<ForkedWorker> workers, std::size_t taken) {
  const std::scoped_lock lock(mutex_);
  std::ranges::move(workers, std::back_inserter(idle_));
  free_ += taken;
  freed_.notify_all();
}

void MathWorkers::end(const ForkedWorker& worker) {
  const std::scoped_lock lock(mutex_);
  server_.kill(worker.id);
}

ForkedWorker MathWorkers::replaced(const ForkedWorker& worker) {
  const std::scoped_lock lock(mutex_);
  server_.kill(worker.id);
  return server_.fork();
}

std::optional<MathOutcome> MathWorkers::remembered(const MathComparison& comparison) {
  const std::scoped_lock lock(mutex_);
  if (too_long_.empty()) return std::nullopt;
  const auto place = too_long_.find(fingerprint(comparison));
  if (place == too_long_.end()) return std::nullopt;
  return MathOutcome{MathVerdict::kTooLong, place->second};
}

void MathWorkers::remember(const MathComparison& comparison, const MathOutcome& outcome) {
  const std::scoped_lock lock(mutex_);
  if (too_long_.size() < kMostRemembered) too_long_.emplace(fingerprint(comparison), outcome.extracted);
}

std::vector<MathOutcome> MathWorkers::compare(std::span<const MathComparison> comparisons) {
  std::vector<MathOutcome> outcomes(comparisons.size());
  std::vector<MathComparison> left;
  std::vector<std::size_t> places;  // indices of the comparisons in `left`
  for (std::size_t i = 0; i < comparisons.size(); ++i) {
    if (auto known = remembered(comparisons[i])) {
      outcomes[i] = std::move(*known);
    } else {
      left.push_back(comparisons[i]);
      places.push_back(i);
    }
  }
  if (left.empty()) return outcomes;
  std::vector<MathOutcome> found = Batch(*this, left).run();
  for (std::size_t i = 0; i < places.size(); ++i) outcomes[places[i]] = std::move(found[i]);
  return outcomes;
}

MathOutcome MathWorkers::compare(const MathComparison& comparison) {
  return std::move(compare(std::span(&comparison, 1)).front());
}

std::vector<pid_t> MathWorkers::processes() {
  const std::scoped_lock lock(mutex_);
  std::vector<pid_t> all = {server_.id()};
  for (const ForkedWorker& worker : idle_) all.push_back(worker.id);
  return all;
}

std::shared_ptr<MathWorkers> shared_math_workers() {
  static std::mutex mutex;
  static std::weak_ptr<MathWorkers> shared;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<MathWorkers> workers = shared.lock();
  if (!workers) shared = workers = std::make_shared<MathWorkers>(MathWorkers::Options{});
  return workers;
}

}  // namespace hone
