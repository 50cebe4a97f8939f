// The step of a pipeline: the schedule of its stages with the times of their programs and transfers.
#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "passes/pipeline.h"
#include "planner/step_time.h"
#include "train/optimizer.h"
#include "train/pipeline_schedule.h"
#include "train/stage_programs.h"

namespace hone {
namespace {

// Times of the programs and exchanges of a chunk of a stage, in seconds.
struct ChunkTimes {
  StepTime forward;
  StepTime backward;
  StepTime last_backward;  // of the last micro-batch, with the sums of gradients
  double sent = 0;         // its values to the next stage, or gradients of them back
};

struct StageTimes {
  std::vector<ChunkTimes> chunks;
  StepTime update;
};

// Bytes of the values that a slot's chunk sends to the next stage.
double sent_bytes(const Workspace& stage, std::int64_t slot) {
  double bytes = 0;
  for (const StoreSpec& store : stage.stores()) {
    if (store.name != slot_store(slot)) continue;
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
    const PipelineShape shape{.stages = static_cast<int>(stages.size()),
                              .chunks = static_cast<int>(stages[0].chunks.size())};
    for (int s = 0; s < shape.stages; ++s) {
      actions_.push_back(one_forward_one_backward(shape, s, micro_batches));
    }
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
    const ChunkTimes& chunk = stages_[s].chunks[static_cast<std::size_t>(mine->chunk)];
    if (mine->kind == Kind::kForward) {
      compute(s, chunk.forward);
      return true;
    }
    if (mine->kind == Kind::kBackward) {
      compute(s, mine->micro_batch + 1 == micro_batches_ ? chunk.last_backward : chunk.backward);
      return true;
    }
    if (mine->kind == Kind::kWithPrevious) return false;
    const std::size_t next = (s + 1) % stages_.size();
    const PipelineAction* const other = action(next);
    if (other == nullptr || other->kind != Kind::kWithPrevious) return false;
    // Values and gradients move at the same time.
    double moved = 0;
    if (mine->sent >= 0) moved = stages_[s].chunks[static_cast<std::size_t>(mine->sent_chunk)].sent;
    if (mine->received >= 0) {
      moved = std::max(moved, stages_[s].chunks[static_cast<std::size_t>(mine->received_chunk)].sent);
    }
    const double end = std::max(seconds_[s], seconds_[next]) + moved;
    for (const std::size_t each : {s, next}) {
      seconds_[each] = end;
      spent_[each].exposed += moved;
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

StepTime CostModel::step(std::span<const PlannedStage> stages, std::size_t ends_bytes) const {
  std::vector<StageTimes> times;
  for (const PlannedStage& stage : stages) {
    StageTimes& time = times.emplace_back();
    const Workspace& programs = *stage.workspace;
    const StageSlots slots(*stage.model);
    for (int chunk = 0; chunk < stage.model->chunks(); ++chunk) {
      const std::int64_t slot = slots.first(chunk);
      ChunkTimes& of_chunk = time.chunks.emplace_back();
      if (!stage.model->is_last(chunk)) of_chunk.forward = run(programs.program(in_slot(kStageForwardProgram, slot)));
      of_chunk.backward = run(programs.program(in_slot(kTrainingProgram, slot)));
      const std::string summing = in_slot(kSummingProgram, slot);
      of_chunk.last_backward = programs.has_program(summing) ? run(programs.program(summing)) : of_chunk.backward;
      of_chunk.sent = rates_.collective_seconds + sent_bytes(programs, slot) / rates_.send_bytes;
    }
    time.update = run(programs.program(kUpdateProgram));
    time.update.exposed += gather_seconds();
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
