#include "eval/scoring.h"

#include <exception>
#include <utility>

#include "core/error.h"
#include "core/parallel.h"
#include "reward/math/workers.h"

namespace hone {
namespace {

// Judges every sample. The first problem's exception, in order, is the one that is thrown.
void judge_all(const EvalTask& task, std::vector<ScoredProblem>& problems) {
  const auto workers = shared_math_workers();  // for all samples the same
  std::vector<std::exception_ptr> failures(problems.size());
  parallel_for(std::ssize(problems), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      auto& [problem, samples] = problems[static_cast<std::size_t>(i)];
      try {
        for (ScoredSample& scored : samples) scored.judgement = task.judge(problem, scored.sample.completion);
      } catch (...) {
        failures[static_cast<std::size_t>(i)] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

std::vector<PassAtK> all_pass_at_k(std::span<const std::vector<double>> scores, std::int64_t samples) {
  std::vector<PassAtK> all;
  if (samples < 2) return all;
  for (std::int64_t k = 1; k < samples; k *= 2) all.push_back({k, pass_at_k(scores, k)});
  all.push_back({samples, pass_at_k(scores, samples)});
  return all;
}

}  // namespace

TaskResult run_scoring(const EvalTask& task, std::vector<EvalProblem> problems,
                       std::vector<std::vector<EvalSample>> samples) {
  HONE_ASSERT(!problems.empty() && problems.size() == samples.size(), problems.size(), " problems, samples of ",
              samples.size());
  TaskResult result{.task = task.name, .samples = std::ssize(samples[0])};
  HONE_ASSERT(result.samples > 0, "a problem has no samples");
  for (std::size_t i = 0; i < problems.size(); ++i) {
    HONE_ASSERT(std::ssize(samples[i]) == result.samples, "problem ", i, " has ", samples[i].size(), " samples, not ",
                result.samples);
    ScoredProblem scored{std::move(problems[i]), {}};
    for (EvalSample& sample : samples[i]) scored.samples.push_back({std::move(sample), {}});
    result.problems.push_back(std::move(scored));
  }
  judge_all(task, result.problems);

  std::vector<std::vector<double>> scores;
  double count = 0.0;
  for (const ScoredProblem& problem : result.problems) {
    scores.emplace_back();
    for (const auto& [sample, judgement] : problem.samples) {
      scores.back().push_back(judgement.score);
      result.mean_tokens += static_cast<double>(sample.token_count);
      result.truncated += sample.ended ? 0.0 : 1.0;
      result.without_answer += judgement.extracted.empty() ? 1.0 : 0.0;
      count += 1.0;
    }
  }
  result.mean_tokens /= count;
  result.truncated /= count;
  result.without_answer /= count;
  result.average = average_score(scores);
  result.pass = all_pass_at_k(scores, result.samples);
  return result;
}

}  // namespace hone
