// Problems of multi-step arithmetic with worked solutions: the data of the quickstart, made rather than downloaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace hone {

// a + b - c ...: terms of one or two digits, worked from left to right, no result below 0.
struct ArithmeticProblem {
  std::vector<std::int64_t> terms;  // signed; the first is not negative

  [[nodiscard]] std::string expression() const;          // "47 + 36 - 25"
  [[nodiscard]] std::vector<std::string> steps() const;  // "47 + 36 = 83", "83 - 25 = 58"
  [[nodiscard]] std::int64_t answer() const;
  // The kind of problem it is: what it asks for ("a + b - c"), and its largest number, results included ("21 to 40").
  [[nodiscard]] std::string operations() const;
  [[nodiscard]] std::string size() const;
  bool operator==(const ArithmeticProblem&) const = default;
};

struct ArithmeticOptions {
  std::uint64_t seed = 0;
  std::int64_t terms = 3;       // a problem
  std::int64_t largest = 20;    // a term
  std::int64_t corpus = 58000;  // problems with plain worked solutions, for pre-training
  double small = 0.35;          // share of corpus, traces and prompts whose terms have one digit: few results have one
  std::int64_t traces = 1500;   // conversations for SFT
  double clumsy = 0.45;         // share of the traces that slip, guess or forget their tags
  std::int64_t prompts = 4000;  // for GRPO
  std::int64_t held_out = 500;  // for evaluation: none of them is in the other files
};

// Problem `index` of a stream; equal arguments give equal problems.
[[nodiscard]] ArithmeticProblem make_problem(std::uint64_t seed, std::string_view stream, std::uint64_t index,
                                             std::int64_t terms, std::int64_t largest);

// What a conversation asks.
[[nodiscard]] std::string question_of(const ArithmeticProblem& problem);
// A tagged trace that works the problem out in steps.
[[nodiscard]] std::string careful_trace(const ArithmeticProblem& problem);
// A trace that slips, guesses or forgets its tags, by `index`.
[[nodiscard]] std::string clumsy_trace(const ArithmeticProblem& problem, std::uint64_t seed, std::uint64_t index);

// Writes corpus.jsonl (text), sft.jsonl (messages), prompts.jsonl and held_out.jsonl (problem, answer; the
// latter with its operations and size too) into `folder`.
void write_arithmetic(const std::filesystem::path& folder, const ArithmeticOptions& options);

}  // namespace hone
