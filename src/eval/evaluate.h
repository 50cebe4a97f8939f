// A model's answers to a task's problems.
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
  SamplingParams sampling;    // its seed is not read
  std::int64_t samples = 1;   // a problem
  std::uint64_t seed = 0;     // sample s of problem p depends on (seed, p, s) and the weights alone
  std::string system_prompt;  // empty: none
  // Of the weights: answers that a journal holds under the same one, and the same prompt and sampling, are taken.
  std::string model_key;
};

// [problems][samples]. Each answer is appended to the journal, where there is one, when it has ended: an evaluation
// that was stopped goes on where it was. Shows progress; throws Interrupted at Ctrl+C.
[[nodiscard]] std::vector<std::vector<EvalSample>> answer_problems(Engine& engine, const Tokenizer& tokenizer,
                                                                   const ChatTemplate& chat_template,
                                                                   std::span<const EvalProblem> problems,
                                                                   const AnswerOptions& options,
                                                                   Journal* journal = nullptr);

}  // namespace hone
