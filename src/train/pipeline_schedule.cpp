#include "train/pipeline_schedule.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"

namespace hone {
namespace {

using ActionKind = PipelineAction::Kind;
constexpr std::int64_t kNoMicroBatch = PipelineAction::kNone;

// A micro-batch in a chunk of a stage; no micro-batch if there is none.
struct Passing {
  std::int64_t micro_batch = kNoMicroBatch;
  int chunk = 0;
  [[nodiscard]] bool exists() const { return micro_batch != kNoMicroBatch; }
};

// Appends the actions of one stage, of which the first has no stage before it and the last none after it.
class ScheduleBuilder {
 public:
  ScheduleBuilder(int stages, int stage) : is_first_(stage == 0), is_last_(stage + 1 == stages) {}

  void forward(std::int64_t micro_batch) { compute(ActionKind::kForward, {micro_batch}); }
  void backward(std::int64_t micro_batch) { compute(ActionKind::kBackward, {micro_batch}); }
  void with_previous(std::int64_t sent, std::int64_t received) {
    if (!is_first_) exchange(ActionKind::kWithPrevious, {sent}, {received});
  }
  void with_next(std::int64_t sent, std::int64_t received) {
    if (!is_last_) exchange(ActionKind::kWithNext, {sent}, {received});
  }
  void compute(ActionKind kind, const Passing& passing) {
    if (!passing.exists()) return;
    actions_.push_back({.kind = kind, .micro_batch = passing.micro_batch, .chunk = passing.chunk});
  }
  void exchange(ActionKind kind, const Passing& sent, const Passing& received) {
    if (!sent.exists() && !received.exists()) return;
    actions_.push_back({.kind = kind,
                        .sent = sent.micro_batch,
                        .received = received.micro_batch,
                        .sent_chunk = sent.chunk,
                        .received_chunk = received.chunk});
  }
  [[nodiscard]] std::vector<PipelineAction> finish() { return std::move(actions_); }

 private:
  bool is_first_;
  bool is_last_;
  std::vector<PipelineAction> actions_;
};

std::vector<PipelineAction> of_one_chunk(int stages, int stage, std::int64_t micro_batches) {
  ScheduleBuilder schedule(stages, stage);
  const std::int64_t warm_up = std::min<std::int64_t>(stages - stage - 1, micro_batches);
  const std::int64_t steady = micro_batches - warm_up;
  for (std::int64_t i = 0; i < warm_up; ++i) {
    schedule.with_previous(kNoMicroBatch, i);
    schedule.forward(i);
    schedule.with_next(i, kNoMicroBatch);
  }
  if (steady > 0) schedule.with_previous(kNoMicroBatch, warm_up);
  for (std::int64_t i = 0; i < steady; ++i) {
    schedule.forward(warm_up + i);
    schedule.with_next(warm_up + i, i);
    schedule.backward(i);
    schedule.with_previous(i, i + 1 < steady ? warm_up + i + 1 : kNoMicroBatch);
  }
  for (std::int64_t i = steady; i < micro_batches; ++i) {
    schedule.with_next(kNoMicroBatch, i);
    schedule.backward(i);
    schedule.with_previous(i, kNoMicroBatch);
  }
  return schedule.finish();
}

// The interleaved schedule of a stage. Stage s makes its step number i when all stages are at step s + i, so that what
// a neighbour needs next is what this stage has just computed.
class InterleavedStage {
 public:
  InterleavedStage(const PipelineShape& shape, int stage, std::int64_t micro_batches)
      : shape_(shape),
        stage_(stage),
        micro_batches_(micro_batches),
        passes_((micro_batches + shape.stages - 1) / shape.stages * shape.stages * shape.chunks) {}

  // Returns the actions of both passes, the backward pass `behind` steps after the forward pass, or of one.
  [[nodiscard]] std::vector<PipelineAction> actions(std::optional<std::int64_t> behind) const {
    ScheduleBuilder schedule(shape_.stages, stage_);
    const auto backward = [&](std::int64_t step) { return behind ? gradients_of(step - *behind) : Passing(); };
    for (std::int64_t step = -1; step < passes_ + behind.value_or(0); ++step) {
      const Passing values = values_of(step);
      const Passing gradients = backward(step);
      schedule.compute(ActionKind::kForward, values);
      schedule.compute(ActionKind::kBackward, gradients);
      const auto with_next = [&] {
        schedule.exchange(ActionKind::kWithNext, unless_last(values), unless_last(backward(step + 1)));
      };
      const auto with_previous = [&] {
        schedule.exchange(ActionKind::kWithPrevious, unless_first(gradients), unless_first(values_of(step + 1)));
      };
      if (turn(stage_) < turn(stage_ == 0 ? shape_.stages - 1 : stage_ - 1)) {
        with_next();
        with_previous();
      } else {
        with_previous();
        with_next();
      }
    }
    return schedule.finish();
  }

 private:
  // The exchanges of a step take place in two or three turns, so that a stage is in one at a time and no stages wait
  // for each other in a ring. Returns the turn of a stage's exchange with the next one.
  [[nodiscard]] int turn(int stage) const {
    const bool closes_odd_ring = shape_.stages % 2 == 1 && stage + 1 == shape_.stages;
    return closes_odd_ring ? 2 : stage % 2;
  }

  // Returns the micro-batch and chunk of the forward pass number `pass`, if chunks come in ascending order.
  [[nodiscard]] Passing values_of(std::int64_t pass) const {
    if (pass < 0 || pass >= passes_) return {};
    const std::int64_t of_group = pass % (static_cast<std::int64_t>(shape_.stages) * shape_.chunks);
    const std::int64_t micro_batch =
        pass / (static_cast<std::int64_t>(shape_.stages) * shape_.chunks) * shape_.stages + of_group % shape_.stages;
    if (micro_batch >= micro_batches_) return {};
    return {micro_batch, static_cast<int>(of_group / shape_.stages)};
  }
  // The same of the backward pass.
  [[nodiscard]] Passing gradients_of(std::int64_t pass) const {
    Passing passing = values_of(pass);
    if (passing.exists()) passing.chunk = shape_.chunks - 1 - passing.chunk;
    return passing;
  }
  // Return what crosses the end, or the beginning, of its range of layers.
  [[nodiscard]] Passing unless_last(const Passing& passing) const {
    return stage_ + 1 == shape_.stages && passing.chunk + 1 == shape_.chunks ? Passing() : passing;
  }
  [[nodiscard]] Passing unless_first(const Passing& passing) const {
    return stage_ == 0 && passing.chunk == 0 ? Passing() : passing;
  }

  PipelineShape shape_;
  int stage_;
  std::int64_t micro_batches_;
  std::int64_t passes_;  // of chunks, those of missing micro-batches included
};

// Returns the steps by which the backward passes of the interleaved schedule follow the forward passes of their number.
std::int64_t steps_behind(const PipelineShape& shape, int stage) {
  return std::int64_t{2} * (shape.stages - stage - 1) + std::int64_t{shape.stages} * (shape.chunks - 1);
}

}  // namespace

std::int64_t most_under_way(const PipelineShape& shape, int stage, int chunk) {
  if (shape.chunks == 1) return shape.stages - stage;
  // A pass of the chunk is under way for `steps` steps, and of `cycle` steps the chunk begins one in each of the first
  // `stages`.
  const std::int64_t steps =
      steps_behind(shape, stage) + std::int64_t{shape.stages} * (shape.chunks - 1 - 2 * chunk) + 1;
  const std::int64_t cycle = std::int64_t{shape.stages} * shape.chunks;
  return steps / cycle * shape.stages + std::min<std::int64_t>(steps % cycle, shape.stages);
}

std::vector<PipelineAction> one_forward_one_backward(const PipelineShape& shape, int stage,
                                                     std::int64_t micro_batches) {
  if (shape.chunks == 1) return of_one_chunk(shape.stages, stage, micro_batches);
  HONE_ASSERT(shape.stages > 1, "chunks of a single stage");
  return InterleavedStage(shape, stage, micro_batches).actions(steps_behind(shape, stage));
}

std::vector<PipelineAction> forward_only(const PipelineShape& shape, int stage, std::int64_t micro_batches) {
  if (shape.chunks > 1) return InterleavedStage(shape, stage, micro_batches).actions(std::nullopt);
  ScheduleBuilder schedule(shape.stages, stage);
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    schedule.with_previous(kNoMicroBatch, i);
    schedule.forward(i);
    schedule.with_next(i, kNoMicroBatch);
  }
  return schedule.finish();
}

}  // namespace hone
