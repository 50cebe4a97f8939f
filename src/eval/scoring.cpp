#include "eval/scoring.h"

#include <algorithm>
#include <exception>
#include <map>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/parallel.h"
#include "math_equality/workers.h"

namespace hone {
namespace {

// Judges every sample. If several problems fail, the exception of the first one in order is thrown.
void judge_all(const EvalTask& task, std::vector<ScoredProblem>& problems) {
  const auto workers = shared_math_workers();  // keeps the pool alive until all samples are judged
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

// Returns the score of the most frequent answer; of several equally frequent answers the first one counts. Samples
// without an answer do not vote; the score is 0 if no sample has an answer. All correct answers count as the same one.
double majority_score(const EvalTask& task, std::span<const ScoredSample> samples) {
  struct Answer {
    const Judgement* first = nullptr;
    std::vector<std::string_view> texts;  // texts that are known to be this answer
    std::size_t votes = 0;
  };
  std::vector<Answer> answers;
  for (const ScoredSample& sample : samples) {
    const Judgement& vote = sample.judgement;
    if (vote.extracted.empty()) continue;
    const auto known = [&](const Answer& answer) {
      return std::ranges::find(answer.texts, std::string_view(vote.extracted)) != answer.texts.end();
    };
    const auto is_same = [&](const Answer& answer) {
      if (vote.score == 1.0 || answer.first->score == 1.0) return vote.score == answer.first->score;
      return task.same && task.same(answer.first->extracted, vote.extracted);
    };
    auto place = std::ranges::find_if(answers, known);
    if (place == answers.end()) place = std::ranges::find_if(answers, is_same);
    if (place == answers.end()) place = answers.insert(answers.end(), {&vote, {}, 0});
    place->texts.emplace_back(vote.extracted);
    ++place->votes;
  }
  const auto best = std::ranges::max_element(answers, {}, &Answer::votes);
  return best == answers.end() ? 0.0 : best->first->score;
}

std::optional<Estimate> majority_estimate(const EvalTask& task, const TaskResult& result) {
  if (!task.votes || result.samples < 2) return std::nullopt;
  const auto workers = shared_math_workers();
  std::vector<double> scores(result.problems.size());
  parallel_for(std::ssize(scores), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      scores[i] = majority_score(task, result.problems[i].samples);
    }
  });
  return estimate_mean(scores);
}

std::vector<PassAtK> all_pass_at_k(std::span<const std::vector<double>> scores, std::int64_t samples) {
  std::vector<PassAtK> all;
  if (samples < 2) return all;
  for (std::int64_t k = 1; k < samples; k *= 2) all.push_back({k, pass_at_k(scores, k)});
  all.push_back({samples, pass_at_k(scores, samples)});
  return all;
}

std::vector<ScoreGroup> grouped(std::span<const ScoredProblem> problems, std::span<const std::vector<double>> scores,
                                std::span<const std::string> columns) {
  std::vector<ScoreGroup> groups;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    std::map<std::string, std::vector<std::vector<double>>> by_value;
    for (std::size_t i = 0; i < problems.size(); ++i) by_value[problems[i].problem.groups.at(c)].push_back(scores[i]);
    for (const auto& [value, of_value] : by_value) {
      groups.push_back({columns[c], value, std::ssize(of_value), average_score(of_value)});
    }
  }
  return groups;
}

}  // namespace

TaskResult run_scoring(const EvalTask& task, std::vector<EvalProblem> problems,
                       std::vector<std::vector<EvalSample>> samples, std::span<const std::string> group_by) {
  HONE_ASSERT(!problems.empty() && problems.size() == samples.size(), problems.size(), " problems, but samples of ",
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
  result.majority = majority_estimate(task, result);
  result.groups = grouped(result.problems, scores, group_by);
  return result;
}

}  // namespace hone
