#include "engine/follower.h"

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/collective.h"
#include "backend/device_memory.h"
#include "core/error.h"
#include "engine/embedder.h"
#include "engine/engine.h"
#include "engine/resident_weights.h"
#include "model/received_tensors.h"

namespace hone {
namespace {

// The runs that a follower has launched on its device.
class FollowedRuns {
 public:
  explicit FollowedRuns(Device& device) : device_(device) {}

  // Begins the ordered run of a program of an engine. The order for the rest comes as soon as the first rank has the
  // tokens of the step before.
  void begin(Engine& engine, std::string_view order) {
    const auto [program, changes] = read(order);
    engine.follow_begin(program, changes);
  }
  // Launches the ordered run of a program of an engine or an embedder, or what is left of it.
  template <class Runner>
  void run(Runner& runner, std::string_view order) {
    const auto [program, changes] = read(order);
    runner.follow(program, changes);
    launched_.push_back(device_.mark());
    // The next order may come while this run is under way, as the first rank launches one step ahead.
    wait_for_all_but(1);
  }

  // Waits for the oldest runs, so that the loss of a rank is noticed.
  void wait_for_all_but(std::size_t left) {
    while (launched_.size() > left) {
      device_.wait(launched_.front());
      check_operations();
      launched_.pop_front();
      if (!launched_.empty()) expect_operations();
    }
  }

 private:
  // Returns the number of the program and the changes of its inputs.
  [[nodiscard]] static std::pair<std::size_t, std::string_view> read(std::string_view order) {
    std::size_t program = 0;
    HONE_ASSERT(order.size() >= sizeof program, order.size(), " bytes of a run");
    std::memcpy(&program, order.data(), sizeof program);
    return {program, order.substr(sizeof program)};
  }

  Device& device_;
  std::deque<DeviceMark> launched_;  // ends of the runs under way, oldest first
};

class Follower {
 public:
  Follower(EngineGroup& group, const Model& model, const Tokenizer& tokenizer, TensorStore weights)
      : group_(group),
        model_(model),
        tokenizer_(tokenizer),
        weights_(model, std::move(weights), &group),
        runs_(weights_.device()) {}

  // Returns false at the end.
  [[nodiscard]] bool carry_out(const EngineGroup::Received& received) {
    switch (received.order) {
      case GroupOrder::kMakeEngine:
        make_engine(received.value<EngineOptions>());
        return true;
      case GroupOrder::kMakeEmbedder:
        make_embedder(received.value<EmbedderOptions>());
        return true;
      case GroupOrder::kAllocate:
        if (group_.together([&] { (void)arena_->base(); })) drop();
        return true;
      case GroupOrder::kBeginEngine:
        runs_.begin(*engine_, received.content);
        return true;
      case GroupOrder::kRunEngine:
        runs_.run(*engine_, received.content);
        return true;
      case GroupOrder::kRunEmbedder:
        runs_.run(*embedder_, received.content);
        return true;
      case GroupOrder::kSettle:
        runs_.wait_for_all_but(0);
        return true;
      case GroupOrder::kMemory:
        (void)group_.least(static_cast<std::int64_t>(memory_of(weights_.device()).available));
        return true;
      // The first rank reports what goes wrong in these.
      case GroupOrder::kSleep:
        sleep(received.value<SleepLevel>());
        return true;
      case GroupOrder::kWakeWeights:
        (void)weights_.take_back();
        return true;
      case GroupOrder::kUpdateWeights:
        (void)weights_.update(received.content);
        return true;
      case GroupOrder::kReceiveTensors:
        receive(notices_of_text(received.content));
        return true;
      case GroupOrder::kWeightsReceived:
        weights_.set_whole(received.value<bool>());
        tensors_.reset();
        staging_.release();
        return true;
      case GroupOrder::kEnd:
        runs_.wait_for_all_but(0);
        return false;
    }
    throw Defect(text_of("order ", static_cast<int>(received.order)));
  }

 private:
  void drop() {
    runs_.wait_for_all_but(0);
    embedder_.reset();
    engine_.reset();
    arena_.reset();
  }

  void sleep(SleepLevel level) {
    runs_.wait_for_all_but(0);
    if (level == SleepLevel::kKeepWeights && weights_.keep()) return;
    drop();
    weights_.give_back(level);
  }

  // Takes this rank's parts of tensors that the first rank has received.
  void receive(const std::vector<TensorNotice>& notices) {
    runs_.wait_for_all_but(0);
    const std::size_t bytes = bytes_of(notices);
    std::byte* const data = staging_.room_for(bytes, weights_.device());
    group_.share(data, bytes);
    if (!tensors_) tensors_.emplace(model_);
    tensors_->load_all(notices, data, weights_.store());
    weights_.device().synchronize();
  }

  // Memory of an engine is given back before there is another.
  void make_engine(const EngineOptions& options) {
    drop();
    arena_ = std::make_shared<Arena>(weights_.device());
    try {
      engine_ = std::make_unique<Engine>(model_, tokenizer_, weights_.store(), arena_, options, &group_);
    } catch (const JobFailure&) {
      throw;
    } catch (const Error&) {
      drop();  // the first rank reports it
    }
  }

  void make_embedder(const EmbedderOptions& options) {
    try {
      embedder_ = std::make_unique<Embedder>(model_, weights_.store(), arena_, options, &group_);
    } catch (const JobFailure&) {
      throw;
    } catch (const Error&) {
      drop();
    }
  }

  EngineGroup& group_;
  const Model& model_;
  const Tokenizer& tokenizer_;
  ResidentWeights weights_;
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Embedder> embedder_;
  FollowedRuns runs_;
  std::optional<ReceivedTensors> tensors_;  // during an update by a trainer
  TensorStaging staging_;
};

}  // namespace

void follow_engine(EngineGroup& group, const Model& model, const Tokenizer& tokenizer, TensorStore weights) {
  Follower follower(group, model, tokenizer, std::move(weights));
  while (follower.carry_out(group.receive())) continue;
}

void follow_engine(EngineGroup& group, Engine& engine) {
  FollowedRuns runs(engine.device());
  for (;;) {
    const EngineGroup::Received received = group.receive();
    if (received.order == GroupOrder::kBeginEngine) {
      runs.begin(engine, received.content);
      continue;
    }
    if (received.order == GroupOrder::kRunEngine) {
      runs.run(engine, received.content);
      continue;
    }
    runs.wait_for_all_but(0);
    if (received.order == GroupOrder::kEnd) return;
    HONE_ASSERT(received.order == GroupOrder::kSettle, "order ", static_cast<int>(received.order));
  }
}

}  // namespace hone
