// Generates a model's answers to the problems of a task.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/shared_journal.h"
#include "engine/engine.h"
#include "eval/scoring.h"
#include "text/chat_template.h"

namespace hone {

struct AnswerOptions {
  SamplingParams sampling;    // its seed is ignored
  std::int64_t samples = 1;   // samples per problem
  std::uint64_t seed = 0;     // sample s of problem p depends only on (seed, p, s) and the weights
  std::string system_prompt;  // empty: none
  // Identifies the weights. Answers in the journal with the same key, prompt and sampling parameters are reused.
  std::string model_key;
  Share share = {};                    // of the answers, by the index of problem x samples + sample
  const Journal* known = nullptr;      // another journal with answers of an earlier run, or null
  std::function<void()> on_step = {};  // called before each step of the engine; what it throws passes
};

// Returns the samples, [problems][samples], of which those of other shares are empty unless a journal has them. If
// there is a journal, appends each answer to it when the answer is complete, so that an interrupted evaluation
// continues where it stopped. Shows progress. Throws Interrupted after Ctrl+C.
[[nodiscard]] std::vector<std::vector<EvalSample>> answer_problems(Engine& engine, const Tokenizer& tokenizer,
                                                                   const ChatTemplate& chat_template,
                                                                   std::span<const EvalProblem> problems,
                                                                   const AnswerOptions& options,
                                                                   Journal* journal = nullptr);

}  // namespace hone
