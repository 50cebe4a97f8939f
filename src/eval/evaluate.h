// Generates a model's answers to the problems of a task.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "data/journal.h"
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
};

// Returns the samples, [problems][samples]. If there is a journal, appends each answer to it when the answer is
// complete, so that an interrupted evaluation continues where it stopped. Shows progress. Throws Interrupted after
// Ctrl+C.
[[nodiscard]] std::vector<std::vector<EvalSample>> answer_problems(Engine& engine, const Tokenizer& tokenizer,
                                                                   const ChatTemplate& chat_template,
                                                                   std::span<const EvalProblem> problems,
                                                                   const AnswerOptions& options,
                                                                   Journal* journal = nullptr);

}  // namespace hone
