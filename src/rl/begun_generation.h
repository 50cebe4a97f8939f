// Completions of the next generation that have begun: with max_staleness, their first tokens are drawn while only a few
// completions of the generation before are left.
//
// Where a generation has N completions, of which up to M are drawn concurrently, the completions of the next one take
// the places of those that are complete, in their order. When the last one of the generation is complete, they end
// where they are. The trainer then learns from the generation, and the next rollout begins with what they have: the new
// weights compute keys and values of these tokens again, so that no key or value of older weights is used and the KV
// cache may share its memory with training. No token is older than the weights of the generation before.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/prompt_set.h"
#include "engine/request.h"
#include "train/training_task.h"

namespace hone {

struct BegunGeneration {
  std::vector<DrawnTokens> completions;  // [completions of the generation]; empty: none has begun
  std::string prompts;                   // fingerprint of its prompts (fingerprint_of)

  // Returns the tensors "begun.lengths" i32 [completions], "begun.tokens" i32 and "begun.logps" f32 [all tokens]; none
  // if no token has been drawn.
  [[nodiscard]] std::vector<TaskTensor> tensors() const;
  // Returns what tensors() returned. Throws Error if they do not fit each other.
  [[nodiscard]] static BegunGeneration from(std::span<const TaskTensor> tensors, std::string prompts);
};

// Returns a text that differs unless these prompts have the same tokens in the same order.
[[nodiscard]] std::string fingerprint_of(const PromptSet& prompts, std::span<const std::uint32_t> chosen);

}  // namespace hone
