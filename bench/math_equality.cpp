// Measures the comparisons per second of the mathematical equality check and its agreement with a reference.
//   math_equality PAIRS.jsonl [WORKERS [ROUNDS]]
// Each line of PAIRS.jsonl is {"gold": ..., "text": ..., "score": 1, 0 or null, "set": ...}. The file is written by
// tests/fixtures/math_equality/make_math_pairs.py.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "math_equality/workers.h"

namespace hone {
namespace {

struct Pair {
  std::string gold;
  std::string text;
  std::string set;
  std::optional<double> score;  // verdict of the reference: 1 equal, 0 not equal, nothing if it gave none
};

std::vector<Pair> read_pairs(const std::string& path) {
  std::vector<Pair> pairs;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const Json row = parse_json(line, path);
    Pair pair{row.at("gold"), row.at("text"), row.value("set", ""), std::nullopt};
    if (!row.at("score").is_null()) pair.score = row.at("score").get<double>();
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

std::optional<double> score_of(MathVerdict verdict) {
  if (verdict == MathVerdict::kNoGold || verdict == MathVerdict::kFailed) return std::nullopt;
  return verdict == MathVerdict::kEqual ? 1.0 : 0.0;
}

const char* shown(const std::optional<double>& score) { return !score ? "none" : *score == 1.0 ? "1" : "0"; }

void report(const std::vector<Pair>& pairs, const std::vector<MathOutcome>& outcomes) {
  std::size_t agree = 0;
  std::map<std::string, std::array<int, 3>> sets;  // by set: pairs, equal by hone, equal by the reference
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto score = score_of(outcomes[i].verdict);
    auto& [count, ours, theirs] = sets[pairs[i].set];
    ++count;
    ours += score == 1.0 ? 1 : 0;
    theirs += pairs[i].score == 1.0 ? 1 : 0;
    if (score == pairs[i].score) {
      ++agree;
      continue;
    }
    std::printf("disagree: reference %s, hone %s\n  gold: %.200s\n  answer: %.200s\n", shown(pairs[i].score),
                shown(score), pairs[i].gold.c_str(), outcomes[i].extracted.c_str());
  }
  for (const auto& [name, counts] : sets) {
    std::printf("%s: %d pairs, equal: hone %d, reference %d\n", name.c_str(), counts[0], counts[1], counts[2]);
  }
  std::printf("agreement: %zu of %zu (%.2f%%)\n", agree, pairs.size(),
              100.0 * static_cast<double>(agree) / static_cast<double>(pairs.size()));
}

int run(int count, char** arguments) {
  if (count < 2) throw Error("usage", "math_equality PAIRS.jsonl [WORKERS [ROUNDS]]");
  const std::vector<Pair> pairs = read_pairs(arguments[1]);
  const int rounds = count > 3 ? std::stoi(arguments[3]) : 5;
  MathWorkers workers({.workers = count > 2 ? std::stoi(arguments[2]) : 0});
  std::vector<MathComparison> comparisons;
  for (const Pair& pair : pairs) comparisons.push_back(reward_comparison(pair.gold, pair.text));
  report(pairs, workers.compare(comparisons));
  double best = 0.0;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    (void)workers.compare(comparisons);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(pairs.size()) / seconds.count());
  }
  std::printf("comparisons per second: %.0f (best of %d rounds)\n", best, rounds);
  return 0;
}

}  // namespace
}  // namespace hone

int main(int count, char** arguments) {
  try {
    return hone::run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
