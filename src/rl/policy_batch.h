// Batches of completions with everything that the policy loss needs for each token.
#pragma once

#include <cstddef>
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
  std::vector<TokenId> completion;  // includes the end token
  std::vector<float> logps;         // [completion] log-probabilities under the sampling policy: the sampler's, or the
                                    // trainer's if the options compare the two
  std::vector<float> importance;    // [completion] factors of the policy term; empty: 1
  std::vector<float> ref_logps;     // [completion] log-probabilities under the reference model; empty without one
  bool truncated = false;           // ended without an end token
  double advantage = 0;
};

// Samples laid end to end. Entry t of each vector belongs to the prediction of token t + 1.
struct PolicyBatch {
  HostBatch batch;                     // loss_weights: 1 if entry t predicts a token of a completion, otherwise 0
  std::vector<float> old_logps;        // [tokens] log-probability under the sampling policy; 0 if nothing is predicted
  std::vector<float> ref_logps;        // [tokens]; empty without a reference model
  std::vector<float> advantages;       // [tokens]
  std::vector<float> loss_advantages;  // [tokens] advantage x importance; 0 if the policy term is left out
  std::vector<float> weights;          // [tokens] weight of the token's loss in the sum of the step
};

// Lays samples end to end, with weights 0. All samples must have a reference, or none.
[[nodiscard]] PolicyBatch make_policy_batch(std::span<const PolicySample> samples);

// Returns the samples [begin, end) of a batch.
[[nodiscard]] PolicyBatch samples_of(const PolicyBatch& batch, std::size_t begin, std::size_t end);
// Returns the samples `chosen` of a batch, in the order of `chosen`.
[[nodiscard]] PolicyBatch samples_of(const PolicyBatch& batch, std::span<const std::size_t> chosen);

// The samples of a step, in their order, by whether its loss has a gradient in them.
struct GradientSplit {
  std::vector<std::size_t> with_gradient;
  std::vector<std::size_t> without_gradient;
};
// Splits the samples of a step whose weights are set. A sample has no gradient if each of its tokens has weight 0 or
// loss advantage 0: all completions of its group got the same reward, or it is masked. other_terms: the loss has terms
// that do not depend on advantages (KL, losses of the model), so that every sample counts as one with a gradient.
[[nodiscard]] GradientSplit split_by_gradient(const PolicyBatch& batch, bool other_terms);

// Returns the entries of `values` that belong to each completion, [samples][completion tokens]. values: [tokens] of the
// batch made from `samples`.
[[nodiscard]] std::vector<std::vector<float>> completion_values(const PolicyBatch& batch,
                                                                std::span<const PolicySample> samples,
                                                                std::span<const float> values);

// The loss weight of a token (w_i in grpo_task.h). It is taken over all samples of an optimizer step, so that the split
// into micro-batches does not change the loss.
struct LossNormaliser {
  GrpoLoss loss = GrpoLoss::kBnpo;
  std::int64_t max_completion_length = 0;
  bool mask_truncated = false;
  std::int64_t samples = 0;  // completions counted so far
  std::int64_t tokens = 0;   // tokens of these completions, without masked ones

  // Adds samples of the step.
  void count(std::span<const PolicySample> samples);
  // Returns the weight of each token of a sample; 0 if the sample is masked.
  [[nodiscard]] double weight(const PolicySample& sample) const;
};
// Fills batch.weights.
void set_loss_weights(PolicyBatch& batch, std::span<const PolicySample> samples, const LossNormaliser& normaliser);

// Returns the smallest entropy among the fraction `share` of tokens with the highest entropies: the (1 - share)
// quantile, interpolated linearly as in torch.quantile. `entropies` holds all tokens of a step that are not masked.
[[nodiscard]] double entropy_threshold(std::vector<float> entropies, double share);
// Sets loss_advantages to 0 for tokens whose entropy is below the threshold. entropies: [tokens].
void mask_low_entropy(PolicyBatch& batch, std::span<const float> entropies, double threshold);

}  // namespace hone
