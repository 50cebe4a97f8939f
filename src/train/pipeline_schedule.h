// The order in which the stages of a pipeline compute the micro-batches of a step. A schedule is data: a list of
// actions for each stage, from which the trainer runs programs and transfers (train/pipeline.h).
#pragma once

#include <cstdint>
#include <vector>

namespace hone {

// The stages of a pipeline and the chunks of each: chunk c of stage s has the range of layers s + c x stages. The
// stage after the last one is the first, which has the next chunk.
struct PipelineShape {
  int stages = 1;
  int chunks = 1;
};

struct PipelineAction {
  enum class Kind : std::uint8_t {
    kForward,       // computes micro-batch `micro_batch` in chunk `chunk`
    kBackward,      // computes its gradients, and in the last range of layers its forward pass as well
    kWithPrevious,  // sends the gradients of `sent` to the stage before and receives the values of `received` from it
    kWithNext,      // sends the values of `sent` to the next stage and receives the gradients of `received` from it
  };
  static constexpr std::int64_t kNone = -1;
  Kind kind = Kind::kForward;
  std::int64_t micro_batch = kNone;  // of a computation
  std::int64_t sent = kNone;         // of an exchange
  std::int64_t received = kNone;
  // Chunks of this stage to which these belong.
  int chunk = 0;
  int sent_chunk = 0;
  int received_chunk = 0;
  bool operator==(const PipelineAction&) const = default;
};

// Returns the micro-batches that a chunk of a stage has begun and not completed at most, those received included.
[[nodiscard]] std::int64_t most_under_way(const PipelineShape& shape, int stage, int chunk = 0);

// Returns the actions of a stage for one forward, one backward (Narayanan et al., "PipeDream", 2019; with a flush at
// the end of a step as in "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021):
// each stage first computes as many forward passes as there are stages behind it, then a forward and a backward pass in
// turn. An exchange completes when both stages have come to it, and neighbours have the same exchanges in the same
// order.
//
// With several chunks it is the interleaved schedule of the second paper. As many micro-batches as there are stages
// pass through a chunk, then through the next one. A stage computes 2 (stages - stage - 1) + (chunks - 1) x stages
// forward passes of chunks first. All stages run in step: from one step, which is a forward pass, a backward pass or
// one of each, to the next, values move on by one stage and gradients back by one. A stage is idle for (stages - 1) /
// chunks of the time of a micro-batch, and has stages x chunks + stages - 1 - 2 stage passes of chunks under way at
// most. If the micro-batches are no multiple of the stages, the stages wait in place of those missing.
[[nodiscard]] std::vector<PipelineAction> one_forward_one_backward(const PipelineShape& shape, int stage,
                                                                   std::int64_t micro_batches);

// Returns the actions of forward passes alone, for an evaluation. A chunk has one micro-batch at a time.
[[nodiscard]] std::vector<PipelineAction> forward_only(const PipelineShape& shape, int stage,
                                                       std::int64_t micro_batches);

}  // namespace hone
