// Synthetic multi-step arithmetic problems with worked solutions. The quickstart trains on this data, which is
// generated locally instead of downloaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace hone {

// A problem "a + b - c ..." that is evaluated from left to right; no intermediate result is below 0.
struct ArithmeticProblem {
  std::vector<std::int64_t> terms;  // [terms]; negative where the term is subtracted; the first is positive

  [[nodiscard]] std::string expression() const;          // "47 + 36 - 25"
  [[nodiscard]] std::vector<std::string> steps() const;  // "47 + 36 = 83", "83 - 25 = 58"
  [[nodiscard]] std::int64_t answer() const;
  // Categories of the problem for reports: its form ("a + b - c"), and the range of its largest number, results
  // included ("21 to 40").
  [[nodiscard]] std::string operations() const;
  [[nodiscard]] std::string size() const;
  bool operator==(const ArithmeticProblem&) const = default;
};

struct ArithmeticOptions {
  std::uint64_t seed = 0;
  std::int64_t terms = 3;       // terms per problem
  std::int64_t largest = 20;    // largest term
  std::int64_t corpus = 58000;  // problems with plain worked solutions, for pre-training
  // Share of the corpus, traces and prompts with one-digit terms; without it few results have one digit.
  double small = 0.35;
  std::int64_t traces = 1500;   // conversations for SFT
  double clumsy = 0.45;         // share of the traces that make a mistake, guess or omit their tags
  std::int64_t prompts = 4000;  // prompts for GRPO
  std::int64_t held_out = 500;  // problems for evaluation; none of them occurs in the other files
};

// Returns problem `index` of the stream named `stream`; equal arguments give equal problems.
[[nodiscard]] ArithmeticProblem make_problem(std::uint64_t seed, std::string_view stream, std::uint64_t index,
                                             std::int64_t terms, std::int64_t largest);

// Returns the question that a user message contains.
[[nodiscard]] std::string question_of(const ArithmeticProblem& problem);
// Returns a correct tagged trace that solves the problem step by step.
[[nodiscard]] std::string correct_trace(const ArithmeticProblem& problem);
// Returns a flawed trace: (seed, index) decides whether it makes a mistake, guesses or omits its tags.
[[nodiscard]] std::string flawed_trace(const ArithmeticProblem& problem, std::uint64_t seed, std::uint64_t index);

// Writes four files into `folder`: corpus.jsonl (text), sft.jsonl (messages), prompts.jsonl (problem, answer) and
// held_out.jsonl (problem, answer, operations, size).
void write_arithmetic(const std::filesystem::path& folder, const ArithmeticOptions& options);

}  // namespace hone
