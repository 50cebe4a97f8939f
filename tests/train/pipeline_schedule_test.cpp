// Properties of the schedules of pipelines, over all small sizes.
#include "train/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

namespace hone::test {
namespace {

using Kind = PipelineAction::Kind;
constexpr std::int64_t kNone = PipelineAction::kNone;

using Schedules = std::vector<std::vector<PipelineAction>>;  // [stages]

Schedules schedules_of(int stages, std::int64_t micro_batches, bool trains) {
  Schedules all;
  for (int stage = 0; stage < stages; ++stage) {
    all.push_back(trains ? one_forward_one_backward(stages, stage, micro_batches)
                         : forward_only(stages, stage, micro_batches));
  }
  return all;
}

bool is_exchange(const PipelineAction& action) {
  return action.kind == Kind::kWithPrevious || action.kind == Kind::kWithNext;
}

// Runs the schedules of all stages until none can continue. An exchange waits for the neighbour's, which must move the
// same micro-batches. Returns false if a stage has not come to the end.
bool completes(const Schedules& all) {
  std::vector<std::size_t> at(all.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < all.size(); ++s) {
      while (at[s] < all[s].size()) {
        const PipelineAction& action = all[s][at[s]];
        if (is_exchange(action)) {
          const bool next = action.kind == Kind::kWithNext;
          if (next ? s + 1 == all.size() : s == 0) return false;  // no such neighbour
          const std::size_t other = next ? s + 1 : s - 1;
          if (at[other] == all[other].size()) return false;
          const PipelineAction& answer = all[other][at[other]];
          if (answer.kind != (next ? Kind::kWithPrevious : Kind::kWithNext)) break;  // it comes to this one later
          if (answer.sent != action.received || answer.received != action.sent) return false;
          ++at[other];
        }
        ++at[s];
        moved = true;
      }
    }
  }
  for (std::size_t s = 0; s < all.size(); ++s) {
    if (at[s] != all[s].size()) return false;
  }
  return true;
}

// Returns the index of each micro-batch's action of a kind; -1 if there is none, -2 if there are several.
std::vector<std::ptrdiff_t> places(const std::vector<PipelineAction>& actions, std::int64_t micro_batches,
                                   std::int64_t PipelineAction::* field, Kind kind) {
  std::vector<std::ptrdiff_t> found(static_cast<std::size_t>(micro_batches), -1);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != kind || actions[i].*field == kNone) continue;
    std::ptrdiff_t& place = found.at(static_cast<std::size_t>(actions[i].*field));
    place = place == -1 ? static_cast<std::ptrdiff_t>(i) : -2;
  }
  return found;
}

TEST(PipelineSchedule, CompletesForAllSizes) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (std::int64_t micro_batches = 0; micro_batches <= 32; ++micro_batches) {
      EXPECT_TRUE(completes(schedules_of(stages, micro_batches, true))) << stages << " stages, " << micro_batches;
      EXPECT_TRUE(completes(schedules_of(stages, micro_batches, false))) << stages << " stages, " << micro_batches;
    }
  }
}

TEST(PipelineSchedule, ABlockedScheduleIsNoticed) {
  Schedules swapped = schedules_of(3, 4, true);
  const auto with_previous = [](const PipelineAction& action) { return action.kind == Kind::kWithPrevious; };
  const auto first = std::ranges::find_if(swapped[1], with_previous);
  std::iter_swap(first, std::find_if(first + 1, swapped[1].end(), with_previous));
  EXPECT_FALSE(completes(swapped));
  Schedules missing = schedules_of(3, 4, true);
  missing[1].erase(std::ranges::find_if(missing[1], with_previous));
  EXPECT_FALSE(completes(missing));
  Schedules lost = schedules_of(2, 4, true);
  lost[1].pop_back();  // the last gradient is not sent
  EXPECT_FALSE(completes(lost));
}

TEST(PipelineSchedule, EachMicroBatchArrivesIsComputedAndLeavesInOrder) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (std::int64_t count = 1; count <= 32; ++count) {
      for (int stage = 0; stage < stages; ++stage) {
        const auto actions = one_forward_one_backward(stages, stage, count);
        const auto of = [&](std::int64_t PipelineAction::* field, Kind kind) {
          return places(actions, count, field, kind);
        };
        const auto forward = of(&PipelineAction::micro_batch, Kind::kForward);
        const auto backward = of(&PipelineAction::micro_batch, Kind::kBackward);
        const auto arrives = of(&PipelineAction::received, Kind::kWithPrevious);
        const auto leaves = of(&PipelineAction::sent, Kind::kWithNext);
        const auto gradient_arrives = of(&PipelineAction::received, Kind::kWithNext);
        const auto gradient_leaves = of(&PipelineAction::sent, Kind::kWithPrevious);
        for (std::size_t i = 0; i < forward.size(); ++i) {
          ASSERT_GE(forward[i], 0);
          ASSERT_LT(forward[i], backward[i]);
          if (i > 0) {  // gradients accumulate in the same order on all stages
            ASSERT_LT(forward[i - 1], forward[i]);
            ASSERT_LT(backward[i - 1], backward[i]);
          }
          ASSERT_EQ(arrives[i] >= 0, stage > 0);
          ASSERT_EQ(gradient_leaves[i] >= 0, stage > 0);
          ASSERT_EQ(leaves[i] >= 0, stage + 1 < stages);
          ASSERT_EQ(gradient_arrives[i] >= 0, stage + 1 < stages);
          if (stage > 0) {
            ASSERT_LT(arrives[i], forward[i]);
            ASSERT_LT(backward[i], gradient_leaves[i]);
          }
          if (stage + 1 < stages) {
            ASSERT_LT(forward[i], leaves[i]);
            ASSERT_LT(gradient_arrives[i], backward[i]);
          }
        }
      }
    }
  }
}

// A slot holds a micro-batch from its arrival to the end of its backward pass; what is sent is in it until it leaves.
TEST(PipelineSchedule, NoSlotIsUsedTwice) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (std::int64_t count = 1; count <= 32; ++count) {
      for (int stage = 0; stage < stages; ++stage) {
        const std::int64_t slots = most_under_way(stages, stage);
        std::vector<std::optional<std::int64_t>> held(static_cast<std::size_t>(slots));
        std::int64_t most = 0;
        const auto begin = [&](std::int64_t micro_batch) {
          std::optional<std::int64_t>& slot = held[static_cast<std::size_t>(micro_batch % slots)];
          ASSERT_FALSE(slot.has_value()) << stages << " stages, stage " << stage << ", micro-batch " << micro_batch;
          slot = micro_batch;
          most = std::max<std::int64_t>(most, std::ranges::count_if(held, [](const auto& each) { return bool(each); }));
        };
        const auto end = [&](std::int64_t micro_batch) {
          std::optional<std::int64_t>& slot = held[static_cast<std::size_t>(micro_batch % slots)];
          ASSERT_EQ(slot, micro_batch);
          slot.reset();
        };
        for (const PipelineAction& action : one_forward_one_backward(stages, stage, count)) {
          const bool previous = action.kind == Kind::kWithPrevious;
          // A slot is free for the next arrival once its gradients have left, which is the same exchange.
          if (previous && action.sent != kNone) end(action.sent);
          if (previous && action.received != kNone) begin(action.received);
          if (action.kind == Kind::kForward && stage == 0) begin(action.micro_batch);
          if (action.kind == Kind::kBackward && stage == 0) end(action.micro_batch);
        }
        EXPECT_EQ(most, std::min(slots, count));
      }
    }
  }
}

}  // namespace
}  // namespace hone::test
