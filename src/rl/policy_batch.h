// Completions as the trainer reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/host_batch.h"
#include "engine/request.h"
#include "rl/options.h"

namespace hone {

// One completion of a rollout.
struct PolicySample {
  std::vector<TokenId> prompt;
  std::vector<TokenId> completion;  // its end token included
  std::vector<float> logps;         // of the completion's tokens, as they were drawn; importance: the trainer's then
  std::vector<float> importance;    // what the policy term of each is multiplied with; empty: nothing
  std::vector<float> ref_logps;     // of the reference model; empty without one
  bool truncated = false;           // no end token
  double advantage = 0;
};

// Samples laid end to end. Entry t belongs to the prediction of token t + 1.
struct PolicyBatch {
  HostBatch batch;                     // loss_weights: 1 where a completion's token is predicted
  std::vector<float> old_logps;        // [tokens], 0 where nothing is predicted
  std::vector<float> ref_logps;        // [tokens]; empty without a reference model
  std::vector<float> advantages;       // [tokens]
  std::vector<float> loss_advantages;  // [tokens]: the same times importance, 0 where the policy term is left out
  std::vector<float> weights;          // [tokens]: what each token's loss counts in the step's sum
};

[[nodiscard]] PolicyBatch make_policy_batch(std::span<const PolicySample> samples);

// The step's normaliser, over all samples of one optimizer step, so that no split into micro-batches changes the loss.
struct LossNormaliser {
  GrpoLoss loss = GrpoLoss::bnpo;
  std::int64_t max_completion_length = 0;
  bool mask_truncated = false;
  std::int64_t samples = 0;  // of the step
  std::int64_t tokens = 0;   // of the step's samples that are not masked

  void count(std::span<const PolicySample> samples);
  // What one token of a sample counts.
  [[nodiscard]] double weight(const PolicySample& sample) const;
};
// Fills batch.weights.
void set_loss_weights(PolicyBatch& batch, std::span<const PolicySample> samples, const LossNormaliser& normaliser);

// The entropy from which on a token is among the `share` of the highest: the (1 - share) quantile, linear between
// neighbours as torch.quantile's. `entropies`: of all tokens of a step that are not masked.
[[nodiscard]] double entropy_threshold(std::vector<float> entropies, double share);
// Leaves out the policy term of tokens below the threshold. entropies [tokens].
void leave_out_low_entropy(PolicyBatch& batch, std::span<const float> entropies, double threshold);

}  // namespace hone
