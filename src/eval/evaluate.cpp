#include "eval/evaluate.h"

#include <algorithm>
#include <unordered_map>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/strings.h"
#include "data/encode.h"
#include "engine/sampling_keys.h"

namespace hone {
namespace {

constexpr const char* kKey = "key";

// Request for one sample.
struct Question {
  Request request;
  std::string key;  // hash of everything that the answer depends on
};

std::string key_of(const AnswerOptions& options, std::string_view prompt, const SamplingParams& sampling) {
  Json answer{{"model", options.model_key},
              {"prompt", prompt},
              {"temperature", sampling.temperature},
              {"top_p", sampling.top_p},
              {"min_p", sampling.min_p},
              {"top_k", sampling.top_k},
              {"repetition_penalty", sampling.repetition_penalty},
              {"max_tokens", sampling.max_tokens},
              {"seed", sampling.seed}};
  // Adjustments that are not in use are left out, so that answers of earlier releases keep their keys.
  const Json adjustments = logit_adjustments(sampling);
  for (const auto& [name, value] : adjustments.items()) {
    if (!value.is_null()) answer[name] = value;
  }
  return content_key(answer.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::vector<Question> make_questions(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                     std::span<const EvalProblem> problems, const AnswerOptions& options) {
  const Json variables = template_variables(tokenizer);
  std::vector<Question> questions;
  for (std::size_t p = 0; p < problems.size(); ++p) {
    Json messages = Json::array();
    if (!options.system_prompt.empty()) messages.push_back({{"role", "system"}, {"content", options.system_prompt}});
    messages.push_back({{"role", "user"}, {"content", problems[p].prompt}});
    const std::string text = chat_template.render(messages, true, variables).text;
    const std::vector<TokenId> prompt = tokenizer.encode(text);
    const RandomStream seeds(options.seed, "eval", p);
    for (std::int64_t s = 0; s < options.samples; ++s) {
      Question question{{prompt, options.sampling}, {}};
      const auto at = static_cast<std::uint64_t>(2 * s);
      question.request.sampling.seed = (std::uint64_t{seeds.bits(at)} << 32) | seeds.bits(at + 1);
      question.key = key_of(options, text, question.request.sampling);
      questions.push_back(std::move(question));
    }
  }
  return questions;
}

EvalSample sample_of(const Completion& completion) {
  return {.completion = completion.text,
          .token_count = std::ssize(completion.tokens),
          .ended = completion.finish_reason == FinishReason::kStop};
}

EvalSample sample_of(const Json& row) {
  return {.completion = row.at("completion").get<std::string>(),
          .token_count = row.at("tokens").get<std::int64_t>(),
          .ended = row.at("ended").get<bool>()};
}

using Waiting = std::unordered_map<RequestId, std::size_t>;  // to the index of the question

// Runs the engine's requests and sets their answers. had: answers that are there, for the progress.
void answer_waiting(Engine& engine, const Waiting& waiting, std::int64_t had, std::span<const Question> questions,
                    std::span<EvalSample> answers, const AnswerOptions& options, Journal* journal) {
  Progress progress("eval", had + std::ssize(waiting), "answer", had);
  engine.run(
      [&](const Engine::Update& update) {
        if (update.finish_reason == FinishReason::kNone) return;
        const std::size_t at = waiting.at(update.id);
        const EvalSample& answer = answers[at] = sample_of(engine.take(update.id));
        progress.advance();
        if (journal == nullptr) return;
        journal->append({{kKey, questions[at].key},
                         {"completion", answer.completion},
                         {"tokens", answer.token_count},
                         {"ended", answer.ended}});
      },
      options.on_step);
  progress.finish();
}

}  // namespace

std::vector<std::vector<EvalSample>> answer_problems(Engine& engine, const Tokenizer& tokenizer,
                                                     const ChatTemplate& chat_template,
                                                     std::span<const EvalProblem> problems,
                                                     const AnswerOptions& options, Journal* journal) {
  const std::vector<Question> questions = make_questions(tokenizer, chat_template, problems, options);
  std::vector<EvalSample> answers(questions.size());
  Waiting waiting;
  std::int64_t had = 0;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::string& key = questions[i].key;
    const bool is_known = options.known != nullptr && options.known->contains(key);
    if (is_known || (journal != nullptr && journal->contains(key))) {
      answers[i] = sample_of(is_known ? options.known->read(key) : journal->read(key));
      ++had;
    } else if (options.share.has(i)) {
      waiting.emplace(engine.add(questions[i].request), i);
    }
  }
  if (had > 0)
    log_info(text_of(format_count(had), " of ", format_count(had + std::ssize(waiting)), " answers are already done"));
  if (!waiting.empty()) answer_waiting(engine, waiting, had, questions, answers, options, journal);
  std::vector<std::vector<EvalSample>> samples(problems.size());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    samples[i / static_cast<std::size_t>(options.samples)].push_back(std::move(answers[i]));
  }
  return samples;
}

}  // namespace hone
