#include "eval/evaluate.h"

#include <nlohmann/json.hpp>

#include "core/progress.h"
#include "core/random.h"
#include "data/encode.h"

namespace hone {

std::vector<std::vector<EvalSample>> answer_problems(Engine& engine, const Tokenizer& tokenizer,
                                                     const ChatTemplate& chat_template,
                                                     std::span<const EvalProblem> problems,
                                                     const AnswerOptions& options) {
  const Json variables = template_variables(tokenizer);
  std::vector<Request> requests;
  for (std::size_t p = 0; p < problems.size(); ++p) {
    Json messages = Json::array();
    if (!options.system_prompt.empty()) messages.push_back({{"role", "system"}, {"content", options.system_prompt}});
    messages.push_back({{"role", "user"}, {"content", problems[p].prompt}});
    const std::vector<TokenId> prompt = tokenizer.encode(chat_template.render(messages, true, variables).text);
    const RandomStream seeds(options.seed, "eval", p);
    for (std::int64_t s = 0; s < options.samples; ++s) {
      Request request{prompt, options.sampling};
      const auto at = static_cast<std::uint64_t>(2 * s);
      request.sampling.seed = (std::uint64_t{seeds.bits(at)} << 32) | seeds.bits(at + 1);
      requests.push_back(std::move(request));
    }
  }
  Progress progress("eval", static_cast<std::int64_t>(requests.size()), "answer");
  const std::vector<Completion> completions = engine.generate(requests, [&](std::int64_t) { progress.advance(); });
  progress.finish();

  std::vector<std::vector<EvalSample>> samples(problems.size());
  for (std::size_t i = 0; i < completions.size(); ++i) {
    samples[i / static_cast<std::size_t>(options.samples)].push_back(
        {.completion = completions[i].text,
         .token_count = static_cast<std::int64_t>(completions[i].tokens.size()),
         .ended = completions[i].finish_reason == FinishReason::stop});
  }
  return samples;
}

}  // namespace hone
