#include "train/pipeline_schedule.h"

#include <algorithm>
#include <utility>

namespace hone {
namespace {

using ActionKind = PipelineAction::Kind;
constexpr std::int64_t kNoMicroBatch = PipelineAction::kNone;

// Appends the actions of one stage, of which the first has no stage before it and the last none after it.
class ScheduleBuilder {
 public:
  ScheduleBuilder(int stages, int stage) : is_first_(stage == 0), is_last_(stage + 1 == stages) {}

  void forward(std::int64_t micro_batch) { compute(ActionKind::kForward, micro_batch); }
  void backward(std::int64_t micro_batch) { compute(ActionKind::kBackward, micro_batch); }
  void with_previous(std::int64_t sent, std::int64_t received) {
    if (!is_first_) exchange(ActionKind::kWithPrevious, sent, received);
  }
  void with_next(std::int64_t sent, std::int64_t received) {
    if (!is_last_) exchange(ActionKind::kWithNext, sent, received);
  }
  [[nodiscard]] std::vector<PipelineAction> finish() { return std::move(actions_); }

 private:
  void compute(ActionKind kind, std::int64_t micro_batch) {
    actions_.push_back({.kind = kind, .micro_batch = micro_batch});
  }
  void exchange(ActionKind kind, std::int64_t sent, std::int64_t received) {
    if (sent == kNoMicroBatch && received == kNoMicroBatch) return;
    actions_.push_back({.kind = kind, .sent = sent, .received = received});
  }

  bool is_first_;
  bool is_last_;
  std::vector<PipelineAction> actions_;
};

}  // namespace

std::vector<PipelineAction> one_forward_one_backward(int stages, int stage, std::int64_t micro_batches) {
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

std::vector<PipelineAction> forward_only(int stages, int stage, std::int64_t micro_batches) {
  ScheduleBuilder schedule(stages, stage);
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    schedule.with_previous(kNoMicroBatch, i);
    schedule.forward(i);
    schedule.with_next(i, kNoMicroBatch);
  }
  return schedule.finish();
}

}  // namespace hone
