// The step of a pipeline: the schedule of its stages with the times of their programs and transfers.
#include <algorithm>
#include <vector>

#include "core/error.h"
#include "passes/pipeline.h"
#include "planner/step_time.h"
#include "train/optimizer.h"
#include "train/pipeline_schedule.h"
#include "train/stage_programs.h"

namespace hone {
namespace {

// Times of the programs and exchanges of a stage, in seconds.
struct StageTimes {
  StepTime forward;
  StepTime backward;
  StepTime last_backward;  // of the last micro-batch, with the sums of gradients
  StepTime update;
  double to_next = 0;  // an exchange with the next stage, values in one direction and gradients in the other
};

// Bytes of the values that a stage sends to the next one.
double sent_bytes(const Workspace& stage) {
  double bytes = 0;
  for (const StoreSpec& store : stage.stores()) {
    if (store.name != slot_store(0)) continue;
    for (const NamedType& tensor : store.tensors) {
      if (is_sent(tensor.name)) bytes += static_cast<double>(tensor.type.bytes());
    }
  }
  return bytes;
}

// Runs the schedules of all stages: an exchange begins when both stages have come to it.
class ScheduleClock {
 public:
  ScheduleClock(const std::vector<StageTimes>& stages, std::int64_t micro_batches)
      : stages_(stages), micro_batches_(micro_batches), seconds_(stages.size(), 0.0), spent_(stages.size()) {
    const auto count = static_cast<int>(stages.size());
    for (int s = 0; s < count; ++s) actions_.push_back(one_forward_one_backward(count, s, micro_batches));
    next_.resize(stages.size(), 0);
  }

  void run() {
    bool advanced = true;
    while (advanced) {
      advanced = false;
      for (std::size_t s = 0; s < stages_.size(); ++s) advanced = advance(s) || advanced;
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) HONE_ASSERT(action(s) == nullptr, "stage ", s, " of a plan waits");
  }
  [[nodiscard]] const std::vector<double>& seconds() const { return seconds_; }  // [stages], when each is done
  [[nodiscard]] const std::vector<StepTime>& spent() const { return spent_; }    // [stages], without waits

 private:
  using Kind = PipelineAction::Kind;

  [[nodiscard]] const PipelineAction* action(std::size_t s) const {
    return next_[s] < actions_[s].size() ? &actions_[s][next_[s]] : nullptr;
  }

  void compute(std::size_t s, const StepTime& time) {
    spent_[s].add(time);
    seconds_[s] += time.total();
    ++next_[s];
  }

  // Takes the next action of a stage if it can begin. Exchanges are taken for both stages, by the first of them.
  bool advance(std::size_t s) {
    const PipelineAction* const mine = action(s);
    if (mine == nullptr) return false;
    if (mine->kind == Kind::kForward) {
      compute(s, stages_[s].forward);
      return true;
    }
    if (mine->kind == Kind::kBackward) {
      compute(s, mine->micro_batch + 1 == micro_batches_ ? stages_[s].last_backward : stages_[s].backward);
      return true;
    }
    if (mine->kind == Kind::kWithPrevious) return false;
    const PipelineAction* const other = action(s + 1);
    if (other == nullptr || other->kind != Kind::kWithPrevious) return false;
    const double end = std::max(seconds_[s], seconds_[s + 1]) + stages_[s].to_next;
    for (const std::size_t each : {s, s + 1}) {
      seconds_[each] = end;
      spent_[each].exposed += stages_[s].to_next;
      ++next_[each];
    }
    return true;
  }

  const std::vector<StageTimes>& stages_;
  std::int64_t micro_batches_;
  std::vector<std::vector<PipelineAction>> actions_;
  std::vector<std::size_t> next_;
  std::vector<double> seconds_;
  std::vector<StepTime> spent_;
};

}  // namespace

StepTime CostModel::step(std::span<const Workspace* const> stages, std::size_t ends_bytes) const {
  std::vector<StageTimes> times;
  for (const Workspace* const stage : stages) {
    StageTimes& time = times.emplace_back();
    if (stage->has_program(kStageForwardProgram)) time.forward = run(stage->program(kStageForwardProgram));
    time.backward = run(stage->program(kTrainingProgram));
    time.last_backward = stage->has_program(kSummingProgram) ? run(stage->program(kSummingProgram)) : time.backward;
    time.update = run(stage->program(kUpdateProgram));
    time.update.exposed += gather_seconds();
    time.to_next = rates_.collective_seconds + sent_bytes(*stage) / rates_.send_bytes;
  }
  ScheduleClock clock(times, work_.micro_batches);
  clock.run();
  // All stages wait for the norm of the gradient, and for the slowest update.
  double update = 0;
  for (const StageTimes& time : times) update = std::max(update, time.update.total());
  const double ends = collective_seconds(static_cast<double>(ends_bytes), 1);
  const double total = std::ranges::max(clock.seconds()) + ends + update;
  StepTime slowest;
  for (std::size_t s = 0; s < times.size(); ++s) {
    StepTime spent = clock.spent()[s];
    spent.add(times[s].update);
    spent.exposed += ends;
    if (spent.total() > slowest.total()) slowest = spent;
  }
  slowest.bubble += std::max(total - slowest.total(), 0.0);
  return slowest;
}

}  // namespace hone
