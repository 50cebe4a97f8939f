// The order in which the stages of a pipeline compute the micro-batches of a step. A schedule is data: a list of
// actions for each stage, from which the trainer runs programs and transfers (train/pipeline.h).
#pragma once

#include <cstdint>
#include <vector>

namespace hone {

struct PipelineAction {
  enum class Kind : std::uint8_t {
    kForward,       // computes micro-batch `micro_batch`
    kBackward,      // computes its gradients, and on the last stage its forward pass as well
    kWithPrevious,  // sends the gradients of `sent` to the stage before and receives the values of `received` from it
    kWithNext,      // sends the values of `sent` to the next stage and receives the gradients of `received` from it
  };
  static constexpr std::int64_t kNone = -1;
  Kind kind = Kind::kForward;
  std::int64_t micro_batch = kNone;  // of a computation
  std::int64_t sent = kNone;         // of an exchange
  std::int64_t received = kNone;
  bool operator==(const PipelineAction&) const = default;
};

// Returns the micro-batches that a stage has begun and not completed at most, those received included.
[[nodiscard]] constexpr std::int64_t most_under_way(int stages, int stage) { return stages - stage; }

// Returns the actions of a stage for one forward, one backward (Narayanan et al., "PipeDream", 2019; with a flush at
// the end of a step as in "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021):
// each stage first computes as many forward passes as there are stages behind it, then a forward and a backward pass in
// turn. An exchange completes when both stages have come to it, and neighbours have the same exchanges in the same
// order.
[[nodiscard]] std::vector<PipelineAction> one_forward_one_backward(int stages, int stage, std::int64_t micro_batches);

// Returns the actions of forward passes alone, for an evaluation.
[[nodiscard]] std::vector<PipelineAction> forward_only(int stages, int stage, std::int64_t micro_batches);

}  // namespace hone
