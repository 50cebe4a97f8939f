#include "support/hip/emulator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "hip/hip_runtime.h"
#include "support/hip/fiber.h"
#include "support/hip/limits.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace hone::emulation {

constexpr std::size_t kPastTheEnd = 256;  // bytes after the shared memory of a block that must not change
alignas(128) std::byte dynamic_shared[kSharedBytes + kPastTheEnd];

namespace {

enum class State : std::uint8_t { kRunnable, kAtBarrier, kAtCollective, kEnded };

struct Thread {
  Fiber fiber;
  State state = State::kEnded;
  dim3 index;
  std::source_location site;  // where it waits
  // The collective that it is at or that is next.
  std::uint64_t mask = 0;  // lanes of the wave
  Collective kind = Collective::kMeet;
  std::uint64_t bits = 0;
  unsigned source = 0;
  std::uint64_t result = 0;
};

std::string text_of_site(const std::source_location& site) {
  const std::string path = site.file_name();
  return path.substr(path.rfind("/ops/") == std::string::npos ? 0 : path.rfind("/ops/") + 1) + ":" +
         std::to_string(site.line());
}

// A reproducible order that differs at every call.
class Shuffle {
 public:
  std::uint64_t next() {  // splitmix64
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  void operator()(std::vector<unsigned>& order) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next() % i]);
  }

 private:
  std::uint64_t state_ = 1;
};

// The block that runs. There is one, and its threads' fibers are used again and again.
class Block {
 public:
  void run(const Extent& block, std::size_t shared_bytes, const std::source_location& launch,
           const std::function<void()>& thread);

  void wait(State state, const std::source_location& site) {
    current().state = state;
    current().site = site;
    Fiber::yield();
  }
  [[nodiscard]] Thread& current() { return *threads_[current_]; }
  [[nodiscard]] unsigned lane() const { return current_ % kWaveLanes; }
  // Ends the launch: the running thread yields for good.
  [[noreturn]] void fail(const std::string& problem) {
    problem_ = problem;
    Fiber::yield();
    std::abort();
  }
  [[nodiscard]] bool enters(const void* variable) {
    if (std::find(entered_.begin(), entered_.end(), variable) != entered_.end()) return false;
    entered_.push_back(variable);
    return true;
  }
  [[nodiscard]] Shuffle& shuffle() { return shuffle_; }

 private:
  static void enter(void* block);
  void step();
  bool release_block();
  bool release_collectives();
  [[nodiscard]] std::uint64_t result_of(unsigned first, const Thread& thread);
  [[nodiscard]] std::optional<std::string> obstacle(unsigned first, const Thread& thread) const;
  [[nodiscard]] std::string deadlock() const;
  [[noreturn]] void report(const std::string& problem) const;

  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<unsigned> order_;
  std::vector<const void*> entered_;  // shared variables
  unsigned count_ = 0;
  unsigned current_ = 0;
  std::source_location launch_;
  const std::function<void()>* body_ = nullptr;
  std::string problem_;
  Shuffle shuffle_;
};

Block& running_block() {
  static Block block;
  return block;
}

void Block::enter(void* block) {
  auto& self = *static_cast<Block*>(block);
  try {
    (*self.body_)();
  } catch (const std::exception& error) {
    self.fail(error.what());
  }
  self.wait(State::kEnded, self.launch_);
}

void Block::report(const std::string& problem) const {
  throw Defect(text_of("emulated kernel launched at ", text_of_site(launch_), ", block ", blockIdx.x, ",", blockIdx.y,
                       ",", blockIdx.z, ": ", problem));
}

void Block::run(const Extent& block, std::size_t shared_bytes, const std::source_location& launch,
                const std::function<void()>& thread) {
  count_ = block.x * block.y * block.z;
  launch_ = launch;
  body_ = &thread;
  problem_.clear();
  entered_.clear();
  if (count_ == 0 || count_ > 1024) report(text_of(count_, " threads in a block"));
  if (shared_bytes > kSharedBytes) report(text_of(shared_bytes, " bytes of shared memory are more than there are"));
  std::memset(dynamic_shared, 0xFF, shared_bytes + kPastTheEnd);
  while (threads_.size() < count_) threads_.push_back(std::make_unique<Thread>());
  order_.resize(count_);
  std::iota(order_.begin(), order_.end(), 0u);
  for (unsigned i = 0; i < count_; ++i) {
    Thread& started = *threads_[i];
    started.index = dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
    started.state = State::kRunnable;
    started.mask = 0;
    started.fiber.start(enter, this);
  }
  while (std::any_of(threads_.begin(), threads_.begin() + count_,
                     [](const auto& t) { return t->state != State::kEnded; })) {
    step();
    const bool collectives = release_collectives();
    if (!release_block() && !collectives && std::any_of(threads_.begin(), threads_.begin() + count_, [](const auto& t) {
          return t->state != State::kEnded;
        })) {
      report(deadlock());
    }
  }
  const auto is_garbage = [](std::byte byte) { return byte == std::byte{0xFF}; };
  if (!std::all_of(dynamic_shared + shared_bytes, dynamic_shared + shared_bytes + kPastTheEnd, is_garbage)) {
    report(text_of("shared memory is written past its ", shared_bytes, " bytes"));
  }
}

// Runs every thread that can until it waits.
void Block::step() {
  shuffle_(order_);
  for (const unsigned i : order_) {
    if (threads_[i]->state != State::kRunnable) continue;
    current_ = i;
    threadIdx = threads_[i]->index;
    threads_[i]->fiber.resume();
    if (!problem_.empty()) report(problem_);
  }
}

// Lets the threads continue if all that have not ended are at one barrier.
bool Block::release_block() {
  const Thread* first = nullptr;
  for (unsigned i = 0; i < count_; ++i) {
    const Thread& thread = *threads_[i];
    if (thread.state == State::kEnded) continue;
    if (thread.state != State::kAtBarrier) return false;
    if (first == nullptr) first = &thread;
    if (thread.site.line() != first->site.line()) {
      report(text_of("threads ", first->index.x, " and ", thread.index.x, " are at different barriers, ",
                     text_of_site(first->site), " and ", text_of_site(thread.site)));
    }
  }
  if (first == nullptr) return false;
  for (unsigned i = 0; i < count_; ++i) {
    if (threads_[i]->state == State::kAtBarrier) threads_[i]->state = State::kRunnable;
  }
  return true;
}

// Why the lanes of a thread's collective can never be there; nothing if they are or may come. `first` is the wave's
// first thread.
std::optional<std::string> Block::obstacle(unsigned first, const Thread& thread) const {
  for (unsigned lane = 0; lane < kWaveLanes; ++lane) {
    if ((thread.mask >> lane & 1u) == 0) continue;
    const auto problem = [&](const std::string& what) {
      return text_of("lane ", lane, " of the mask at ", text_of_site(thread.site), " ", what);
    };
    if (first + lane >= count_) return problem("does not exist");
    const Thread& other = *threads_[first + lane];
    if (other.state == State::kEnded) return problem("has ended");
    if (other.state != State::kAtCollective) continue;
    if (other.mask != thread.mask || other.kind != thread.kind || other.site.line() != thread.site.line()) {
      return problem("is at another collective, " + text_of_site(other.site));
    }
  }
  return std::nullopt;
}

// Lets the lanes of collectives continue whose lanes are all there.
bool Block::release_collectives() {
  std::vector<unsigned> ready;
  std::uint64_t seen = 0;  // lanes of the wave whose collective has been looked at
  for (unsigned i = 0; i < count_; ++i) {
    const Thread& thread = *threads_[i];
    const unsigned first = i / kWaveLanes * kWaveLanes;
    if (i == first) seen = 0;
    if (thread.state != State::kAtCollective || (seen >> (i - first) & 1u) != 0) continue;
    if (const auto problem = obstacle(first, thread)) report(*problem);
    seen |= thread.mask;  // lanes that are there are at the same collective with the same mask
    const std::size_t before = ready.size();
    bool all = true;
    for (unsigned lane = 0; lane < kWaveLanes; ++lane) {
      if ((thread.mask >> lane & 1u) == 0) continue;
      all = all && threads_[first + lane]->state == State::kAtCollective;
      ready.push_back(first + lane);
    }
    if (!all) ready.resize(before);
  }
  // The bits of all lanes are there, and no lane changes its own before the next step.
  for (const unsigned i : ready) {
    threads_[i]->result = result_of(i / kWaveLanes * kWaveLanes, *threads_[i]);
    threads_[i]->state = State::kRunnable;
  }
  return !ready.empty();
}

// Returns what a thread gets from a collective whose lanes are all there.
std::uint64_t Block::result_of(unsigned first, const Thread& thread) {
  if (thread.kind == Collective::kMeet) return 0;
  if (thread.kind == Collective::kShuffle) {
    if (thread.source >= kWaveLanes || (thread.mask >> thread.source & 1u) == 0) {
      report(text_of("thread ", thread.index.x, " reads lane ", thread.source, ", which is not in the mask, at ",
                     text_of_site(thread.site)));
    }
    return threads_[first + thread.source]->bits;
  }
  std::uint64_t bits = shuffle_.next() & ~thread.mask;  // those of other lanes mean nothing
  for (unsigned lane = 0; lane < kWaveLanes; ++lane) {
    if ((thread.mask >> lane & 1u) != 0) bits |= threads_[first + lane]->bits << lane;
  }
  return bits;
}

std::string Block::deadlock() const {
  std::string text = "the block waits forever:";
  for (const State state : {State::kAtBarrier, State::kAtCollective}) {
    const Thread* first = nullptr;
    unsigned waiting = 0;
    for (unsigned i = 0; i < count_; ++i) {
      if (threads_[i]->state != state) continue;
      if (first == nullptr) first = threads_[i].get();
      ++waiting;
    }
    if (waiting == 0) continue;
    text += text_of(" ", waiting, " threads at ", state == State::kAtBarrier ? "the barrier " : "the collective ",
                    text_of_site(first->site), ";");
  }
  const auto ended = std::count_if(threads_.begin(), threads_.begin() + count_,
                                   [](const auto& thread) { return thread->state == State::kEnded; });
  return text + text_of(" ", ended, " have ended");
}

}  // namespace

void run_kernel(const Extent& grid, const Extent& block, std::size_t shared_bytes, const std::source_location& site,
                const std::function<void()>& thread) {
  gridDim = dim3(grid.x, grid.y, grid.z);
  blockDim = dim3(block.x, block.y, block.z);
  std::vector<unsigned> blocks(static_cast<std::size_t>(grid.x) * grid.y * grid.z);
  std::iota(blocks.begin(), blocks.end(), 0u);
  running_block().shuffle()(blocks);
  for (const unsigned b : blocks) {
    blockIdx = dim3(b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y);
    running_block().run(block, shared_bytes, site, thread);
  }
}

void wait_for_block(const std::source_location& site) { running_block().wait(State::kAtBarrier, site); }

unsigned wave_lane() { return running_block().lane(); }

void set_collective(std::uint32_t mask, const std::source_location& site) {
  Block& block = running_block();
  const unsigned start = block.lane() & ~31u;
  Thread& thread = block.current();
  if (thread.mask != 0) block.fail(text_of("two masks for one collective at ", text_of_site(site)));
  thread.mask = std::uint64_t{mask} << start;
  thread.site = site;
  if ((thread.mask >> block.lane() & 1u) == 0) {
    block.fail(text_of("lane ", block.lane(), " is not in its own mask at ", text_of_site(site)));
  }
}

std::uint64_t exchange(Collective kind, std::uint64_t bits, unsigned source) {
  Block& block = running_block();
  Thread& thread = block.current();
  if (thread.mask == 0) block.fail("a collective without a mask");
  thread.kind = kind;
  thread.bits = bits;
  thread.source = source;
  block.wait(State::kAtCollective, thread.site);
  thread.mask = 0;
  return thread.result;
}

void enter_shared(void* variable, std::size_t bytes) {
  if (running_block().enters(variable)) std::memset(variable, 0xFF, bytes);
}

}  // namespace hone::emulation
