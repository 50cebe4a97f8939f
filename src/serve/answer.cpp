#include "serve/answer.h"

#include <utility>

namespace hone {

void AnswerPart::append(const AnswerPart& more) {
  reasoning += more.reasoning;
  content += more.content;
  calls.insert(calls.end(), more.calls.begin(), more.calls.end());
  tokens.insert(tokens.end(), more.tokens.begin(), more.tokens.end());
  logps.insert(logps.end(), more.logps.begin(), more.logps.end());
  top_logprobs.insert(top_logprobs.end(), more.top_logprobs.begin(), more.top_logprobs.end());
  prompt_logps.insert(prompt_logps.end(), more.prompt_logps.begin(), more.prompt_logps.end());
  prompt_top_logprobs.insert(prompt_top_logprobs.end(), more.prompt_top_logprobs.begin(),
                             more.prompt_top_logprobs.end());
  finish_reason = more.finish_reason;
}

AnswerPart AnswerDivider::add(GenerationProgress progress) {
  const bool ends = progress.finish_reason != FinishReason::kNone;
  AnswerPart part{.reasoning = {},
                  .content = std::move(progress.text),
                  .calls = {},
                  .tokens = std::move(progress.tokens),
                  .logps = std::move(progress.logps),
                  .top_logprobs = std::move(progress.top_logprobs),
                  .prompt_logps = std::move(progress.prompt_logps),
                  .prompt_top_logprobs = std::move(progress.prompt_top_logprobs),
                  .finish_reason = progress.finish_reason};
  if (division_.reasoning) {
    ReasoningSplitter::Part split = reasoning_.add(part.content);
    if (ends) {
      const ReasoningSplitter::Part rest = reasoning_.finish();
      split.reasoning += rest.reasoning;
      split.content += rest.content;
    }
    part.reasoning = std::move(split.reasoning);
    part.content = std::move(split.content);
  }
  if (division_.tools) {
    part.content = tools_.add(part.content);
    if (ends) {
      ToolAnswer rest = tools_.finish();
      part.content += rest.content;
      part.calls = std::move(rest.calls);
    }
  }
  return part;
}

}  // namespace hone
