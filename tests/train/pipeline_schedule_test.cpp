// Properties of the schedules of pipelines, over all small sizes.
#include "train/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace hone::test {
namespace {

using Kind = PipelineAction::Kind;
constexpr std::int64_t kNone = PipelineAction::kNone;

using Schedules = std::vector<std::vector<PipelineAction>>;  // [stages]

Schedules schedules_of(const PipelineShape& shape, std::int64_t micro_batches, bool trains) {
  Schedules all;
  for (int stage = 0; stage < shape.stages; ++stage) {
    all.push_back(trains ? one_forward_one_backward(shape, stage, micro_batches)
                         : forward_only(shape, stage, micro_batches));
  }
  return all;
}

// Calls visit(shape) for pipelines of one chunk and of several.
template <class Visit>
void for_each_shape(const Visit& visit) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (const int chunks : {1, 2, 3, 4}) {
      if (stages > 1 || chunks == 1) visit(PipelineShape{stages, chunks});
    }
  }
}

std::string text_of_shape(const PipelineShape& shape, std::int64_t micro_batches) {
  return std::to_string(shape.stages) + " stages of " + std::to_string(shape.chunks) + " chunks, " +
         std::to_string(micro_batches) + " micro-batches";
}

bool is_exchange(const PipelineAction& action) {
  return action.kind == Kind::kWithPrevious || action.kind == Kind::kWithNext;
}

// The times of computations, and of stages after a run.
struct Times {
  double forward = 1;
  double backward = 1;
  std::vector<double> stages = {};
};

// Returns true if two neighbours move the same micro-batches. A value leaves chunk c of the last stage for chunk c + 1
// of the first, which closes the ring.
bool is_answer(const PipelineAction& next, const PipelineAction& previous, bool closes_ring) {
  const int step = closes_ring ? 1 : 0;
  const bool same_value =
      next.sent == previous.received && (next.sent == kNone || next.sent_chunk + step == previous.received_chunk);
  const bool same_gradient =
      next.received == previous.sent && (next.received == kNone || next.received_chunk + step == previous.sent_chunk);
  return same_value && same_gradient;
}

// Runs the schedules of all stages until none can continue. An exchange waits for the neighbour's, which must move the
// same micro-batches, and takes no time. Returns false if a stage has not come to the end.
bool completes(const Schedules& all, Times* times = nullptr) {
  std::vector<std::size_t> at(all.size(), 0);
  std::vector<double> clock(all.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < all.size(); ++s) {
      while (at[s] < all[s].size()) {
        const PipelineAction& action = all[s][at[s]];
        if (is_exchange(action)) {
          // The stage before takes the pair, so that two stages that are neighbours on both sides are not confused.
          if (action.kind == Kind::kWithPrevious) break;
          const std::size_t other = (s + 1) % all.size();
          if (other == s || at[other] == all[other].size()) return false;
          const PipelineAction& answer = all[other][at[other]];
          if (answer.kind != Kind::kWithPrevious) break;  // it comes to this one later
          if (!is_answer(action, answer, other == 0)) return false;
          ++at[other];
          clock[s] = clock[other] = std::max(clock[s], clock[other]);
        } else if (times != nullptr) {
          clock[s] += action.kind == Kind::kForward ? times->forward : times->backward;
        }
        ++at[s];
        moved = true;
      }
    }
  }
  for (std::size_t s = 0; s < all.size(); ++s) {
    if (at[s] != all[s].size()) return false;
  }
  if (times != nullptr) times->stages = clock;
  return true;
}

using Passing = std::pair<int, std::int64_t>;  // a chunk and a micro-batch

// Returns the index of the action of a kind for each micro-batch in each chunk; -2 if there are several.
std::map<Passing, std::ptrdiff_t> places(const std::vector<PipelineAction>& actions,
                                         std::int64_t PipelineAction::* field, int PipelineAction::* chunk, Kind kind) {
  std::map<Passing, std::ptrdiff_t> found;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != kind || actions[i].*field == kNone) continue;
    const Passing passing{actions[i].*chunk, actions[i].*field};
    const bool is_new = found.emplace(passing, static_cast<std::ptrdiff_t>(i)).second;
    if (!is_new) found[passing] = -2;
  }
  return found;
}

TEST(PipelineSchedule, CompletesForAllSizes) {
  for_each_shape([](const PipelineShape& shape) {
    for (std::int64_t micro_batches = 0; micro_batches <= 32; ++micro_batches) {
      EXPECT_TRUE(completes(schedules_of(shape, micro_batches, true))) << text_of_shape(shape, micro_batches);
      EXPECT_TRUE(completes(schedules_of(shape, micro_batches, false))) << text_of_shape(shape, micro_batches);
    }
  });
}

TEST(PipelineSchedule, ABlockedScheduleIsNoticed) {
  for (const int chunks : {1, 2}) {
    const PipelineShape shape{3, chunks};
    Schedules swapped = schedules_of(shape, 6, true);
    const auto with_previous = [](const PipelineAction& action) { return action.kind == Kind::kWithPrevious; };
    const auto first = std::ranges::find_if(swapped[1], with_previous);
    std::iter_swap(first, std::find_if(first + 1, swapped[1].end(), with_previous));
    EXPECT_FALSE(completes(swapped));
    Schedules missing = schedules_of(shape, 6, true);
    missing[1].erase(std::ranges::find_if(missing[1], with_previous));
    EXPECT_FALSE(completes(missing));
    Schedules lost = schedules_of(shape, 6, true);
    lost[1].pop_back();  // the last gradient is not sent
    EXPECT_FALSE(completes(lost));
    Schedules other = schedules_of(shape, 6, true);
    std::ranges::find_if(other[1], with_previous)->received_chunk += 1;
    EXPECT_FALSE(completes(other));
  }
}

// Each stage computes each micro-batch in each chunk once, after what it needs has arrived, and sends on what others
// need. Gradients of a chunk accumulate in the order of micro-batches on all stages.
TEST(PipelineSchedule, EachMicroBatchArrivesIsComputedAndLeavesInOrder) {
  for_each_shape([](const PipelineShape& shape) {
    for (const std::int64_t count : {1, 2, 3, 4, 5, 7, 8, 12, 16, 21, 24}) {
      for (int stage = 0; stage < shape.stages; ++stage) {
        const auto actions = one_forward_one_backward(shape, stage, count);
        const auto of = [&](std::int64_t PipelineAction::* field, int PipelineAction::* chunk, Kind kind) {
          return places(actions, field, chunk, kind);
        };
        using Action = PipelineAction;
        auto forward = of(&Action::micro_batch, &Action::chunk, Kind::kForward);
        auto backward = of(&Action::micro_batch, &Action::chunk, Kind::kBackward);
        auto arrives = of(&Action::received, &Action::received_chunk, Kind::kWithPrevious);
        auto leaves = of(&Action::sent, &Action::sent_chunk, Kind::kWithNext);
        auto gradient_arrives = of(&Action::received, &Action::received_chunk, Kind::kWithNext);
        auto gradient_leaves = of(&Action::sent, &Action::sent_chunk, Kind::kWithPrevious);
        std::set<Passing> computed;
        for (int chunk = 0; chunk < shape.chunks; ++chunk) {
          const bool first = stage == 0 && chunk == 0;
          const bool last = stage + 1 == shape.stages && chunk + 1 == shape.chunks;
          for (std::int64_t i = 0; i < count; ++i) {
            const Passing one{chunk, i};
            computed.insert(one);
            ASSERT_GE(forward.at(one), 0);
            ASSERT_LT(forward.at(one), backward.at(one));
            if (i > 0) {
              ASSERT_LT(forward.at({chunk, i - 1}), forward.at(one));
              ASSERT_LT(backward.at({chunk, i - 1}), backward.at(one));
            }
            ASSERT_EQ(arrives.contains(one), !first);
            ASSERT_EQ(gradient_leaves.contains(one), !first);
            ASSERT_EQ(leaves.contains(one), !last);
            ASSERT_EQ(gradient_arrives.contains(one), !last);
            if (!first) {
              ASSERT_GE(arrives.at(one), 0);
              ASSERT_LT(arrives.at(one), forward.at(one));
              ASSERT_LT(backward.at(one), gradient_leaves.at(one));
            }
            if (!last) {
              ASSERT_GE(gradient_arrives.at(one), 0);
              ASSERT_LT(forward.at(one), leaves.at(one));
              ASSERT_LT(gradient_arrives.at(one), backward.at(one));
            }
          }
        }
        ASSERT_EQ(forward.size(), computed.size());
        ASSERT_EQ(backward.size(), computed.size());
      }
    }
  });
}

// A slot holds a micro-batch from its arrival to the end of its backward pass; what is sent is in it until it leaves.
TEST(PipelineSchedule, NoSlotIsUsedTwice) {
  for_each_shape([](const PipelineShape& shape) {
    for (std::int64_t count = 1; count <= 32; ++count) {
      for (int stage = 0; stage < shape.stages; ++stage) {
        std::map<int, std::map<std::int64_t, std::int64_t>> held;  // by chunk: the micro-batches in slots
        std::map<int, std::int64_t> most;
        const auto slots = [&](int chunk) { return most_under_way(shape, stage, chunk); };
        for (int chunk = 0; chunk < shape.chunks; ++chunk) {
          ASSERT_GT(slots(chunk), 0) << text_of_shape(shape, count) << ", stage " << stage << ", chunk " << chunk;
        }
        const auto begin = [&](int chunk, std::int64_t micro_batch) {
          const bool is_free = held[chunk].emplace(micro_batch % slots(chunk), micro_batch).second;
          ASSERT_TRUE(is_free) << text_of_shape(shape, count) << ", stage " << stage << ", chunk " << chunk;
          most[chunk] = std::max(most[chunk], static_cast<std::int64_t>(held[chunk].size()));
        };
        const auto end = [&](int chunk, std::int64_t micro_batch) {
          ASSERT_EQ(held[chunk].at(micro_batch % slots(chunk)), micro_batch);
          held[chunk].erase(micro_batch % slots(chunk));
        };
        for (const PipelineAction& action : one_forward_one_backward(shape, stage, count)) {
          const bool previous = action.kind == Kind::kWithPrevious;
          const bool first = stage == 0 && action.chunk == 0;
          // A slot is free for the next arrival once its gradients have left, which is the same exchange.
          if (previous && action.sent != kNone) end(action.sent_chunk, action.sent);
          if (previous && action.received != kNone) begin(action.received_chunk, action.received);
          if (action.kind == Kind::kForward && first) begin(0, action.micro_batch);
          if (action.kind == Kind::kBackward && first) end(0, action.micro_batch);
        }
        for (int chunk = 0; chunk < shape.chunks; ++chunk) {
          if (shape.chunks == 1 || count >= 2 * shape.stages) {
            EXPECT_EQ(most[chunk], std::min(slots(chunk), count)) << text_of_shape(shape, count) << ", " << chunk;
          }
        }
      }
    }
  });
}

// Narayanan et al. (2021) and Korthikanti et al. (2022): the first stage keeps activations of stages x chunks +
// stages - 1 passes of chunks, each later one two fewer.
TEST(PipelineSchedule, PassesUnderWayAreThosePublished) {
  for_each_shape([](const PipelineShape& shape) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      std::int64_t under_way = 0;
      std::int64_t most = 0;
      for (const PipelineAction& action : one_forward_one_backward(shape, stage, 4 * shape.stages)) {
        under_way += (action.kind == Kind::kForward ? 1 : 0) - (action.kind == Kind::kBackward ? 1 : 0);
        most = std::max(most, under_way);
      }
      const std::int64_t published = shape.chunks == 1
                                         ? shape.stages - stage
                                         : shape.stages * shape.chunks + shape.stages - 1 - 2 * std::int64_t{stage};
      EXPECT_EQ(most, published) << text_of_shape(shape, 4 * shape.stages) << ", stage " << stage;
      // Chunks have their most at different times.
      std::int64_t slots = 0;
      for (int chunk = 0; chunk < shape.chunks; ++chunk) slots += most_under_way(shape, stage, chunk);
      EXPECT_GE(slots, published);
      EXPECT_LE(2 * slots, 3 * published) << text_of_shape(shape, 4 * shape.stages) << ", stage " << stage;
    }
  });
}

// Forward and backward passes of a chunk take F and B, of all chunks of a stage chunks times as long, and a step
// (micro-batches x chunks + stages - 1) (F + B): a stage is idle for (stages - 1) (F + B).
TEST(PipelineSchedule, TheBubbleIsThePublishedOne) {
  for_each_shape([](const PipelineShape& shape) {
    for (const std::int64_t multiple : {1, 2, 3, 7}) {
      const std::int64_t count = multiple * shape.stages;
      for (const double backward : {1.0, 2.0, 2.5}) {
        Times times{.forward = 1, .backward = backward};
        ASSERT_TRUE(completes(schedules_of(shape, count, true), &times));
        const auto passes = static_cast<double>(count * shape.chunks);
        const double step = (passes + shape.stages - 1) * (1 + backward);
        EXPECT_DOUBLE_EQ(std::ranges::max(times.stages), step) << text_of_shape(shape, count);
      }
      Times forward{.forward = 1};
      ASSERT_TRUE(completes(schedules_of(shape, count, false), &forward));
      EXPECT_DOUBLE_EQ(std::ranges::max(forward.stages), static_cast<double>(count * shape.chunks + shape.stages - 1));
    }
  });
}

// An evaluation has one slot for each chunk: a value is computed with before the next one arrives, and has left before
// the next one is computed.
TEST(PipelineSchedule, AnEvaluationHasOneMicroBatchInAChunk) {
  for_each_shape([](const PipelineShape& shape) {
    for (const std::int64_t count : {1, 3, 8, 13}) {
      for (int stage = 0; stage < shape.stages; ++stage) {
        std::map<int, std::int64_t> arrived;
        std::map<int, std::int64_t> computed;
        for (const PipelineAction& action : forward_only(shape, stage, count)) {
          if (action.kind == Kind::kForward) {
            if (stage > 0 || action.chunk > 0) {
              ASSERT_EQ(arrived.at(action.chunk), action.micro_batch);
              arrived.erase(action.chunk);
            }
            if (stage + 1 < shape.stages || action.chunk + 1 < shape.chunks) {
              ASSERT_TRUE(computed.emplace(action.chunk, action.micro_batch).second);
            }
          }
          if (action.kind == Kind::kWithPrevious) {
            ASSERT_TRUE(arrived.emplace(action.received_chunk, action.received).second);
          }
          if (action.kind == Kind::kWithNext) {
            ASSERT_EQ(computed.at(action.sent_chunk), action.sent);
            computed.erase(action.sent_chunk);
          }
        }
        EXPECT_TRUE(arrived.empty() && computed.empty());
      }
    }
  });
}

}  // namespace
}  // namespace hone::test
