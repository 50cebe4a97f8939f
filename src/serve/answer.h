// The answer of a model to one request: its choices, and what they have gained.
#pragma once

#include <string>
#include <vector>

#include "engine/request.h"
#include "serve/generation_job.h"
#include "serve/reasoning_splitter.h"
#include "serve/tool_calls.h"

namespace hone {

// The text and the tokens that a choice has gained, or all of them.
struct AnswerPart {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;  // only in the last part
  std::vector<TokenId> tokens;
  std::vector<float> logps;                             // [tokens]
  std::vector<std::vector<TokenLogprob>> top_logprobs;  // [tokens], or empty
  std::vector<float> prompt_logps = {};                 // only in the first part, as in GenerationProgress
  std::vector<std::vector<TokenLogprob>> prompt_top_logprobs = {};
  FinishReason finish_reason = FinishReason::kNone;

  void append(const AnswerPart& more);
};

// The parts into which the text of a choice is divided.
struct AnswerDivision {
  bool reasoning = false;         // into reasoning and content
  bool reasoning_opened = false;  // the prompt ends inside of the reasoning
  bool tools = false;             // into content and tool calls
};

// Divides the text of one choice while it is generated. The parts, concatenated, do not depend on how the text was
// divided into progress.
class AnswerDivider {
 public:
  explicit AnswerDivider(const AnswerDivision& division) : division_(division), reasoning_(division.reasoning_opened) {}
  [[nodiscard]] AnswerPart add(GenerationProgress progress);

 private:
  AnswerDivision division_;
  ReasoningSplitter reasoning_;
  ToolCallSplitter tools_;
};

}  // namespace hone
