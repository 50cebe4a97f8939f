#include "data/arithmetic.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/random.h"
#include "core/strings.h"

namespace hone {
namespace {

std::string join_steps(const ArithmeticProblem& problem, std::string_view separator) {
  return join(problem.steps(), separator);
}

// Appends at most `most` remarks to a text, each after a space or a newline; draws from `random`, starting at index
// `at`.
template <std::size_t kCount>
void add_remarks(std::string& text, const std::array<std::string_view, kCount>& remarks, std::uint64_t most,
                 const RandomStream& random, std::uint64_t at) {
  const std::uint64_t count = random.below(at, most + 1);
  for (std::uint64_t i = 0; i < count; ++i) {
    text += random.below(at + 1 + 2 * i, 2) == 0 ? ' ' : '\n';
    text += remarks[random.below(at + 2 + 2 * i, kCount)];
  }
}

// Returns a solution as running text: the style of the corpus, which is most of what the model sees. The words before
// the problem, the number of remarks before and after its steps, and the signs around the answer all vary, and half of
// the texts state the answer twice. A copied number is therefore never at a fixed distance from its source or after a
// fixed token: the model learns to copy numbers and signs by their role in the problem, and later recognizes them in
// conversations. With a fixed frame, some seeds learn to copy by distance alone; they reach the same loss but fail on
// conversations. Some texts begin as questions and some answers are in boxes, because SFT has too few traces to teach
// those in addition to its tags.
std::string plain_solution(const ArithmeticProblem& problem, std::uint64_t seed, std::uint64_t index) {
  constexpr std::array<std::string_view, 10> kBefore{"",
                                                     "",
                                                     "Compute ",
                                                     "Let us work out ",
                                                     "Here is a sum: ",
                                                     "Take ",
                                                     "Someone asked for ",
                                                     "The problem was ",
                                                     "What is ",
                                                     "How much is "};
  constexpr std::array<std::string_view, 6> kAfter{"", ".", ":", "!", "?", ", step by step."};
  constexpr std::array<std::string_view, 8> kOpening{"From left to right.",
                                                     "Slowly.",
                                                     "Two steps are enough.",
                                                     "Easy.",
                                                     "Let us see what it makes.",
                                                     "One after the other, as it was asked.",
                                                     "No guess.",
                                                     "So:"};
  constexpr std::array<std::string_view, 4> kClosing{"Done.", "That was the last step.", "Now we see.",
                                                     "There are no more steps."};
  constexpr std::array<std::string_view, 3> kBreaks{"\n", "\n", "\n\n"};
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kEnd{{{"The answer is ", "."},
                                                                                {"So it is ", "."},
                                                                                {"That makes ", "."},
                                                                                {"The answer: [", "]"},
                                                                                {"It makes (", ")."},
                                                                                {"So it is \"", "\"."},
                                                                                {"Answer=", ""},
                                                                                {"<", "> is the answer."},
                                                                                {"The answer is \\boxed{", "}."},
                                                                                {"\\boxed{", "}"}}};
  const RandomStream random(seed, "style", index);
  std::string text =
      text_of(kBefore[random.below(0, kBefore.size())], problem.expression(), kAfter[random.below(1, kAfter.size())]);
  add_remarks(text, kOpening, 3, random, 5);
  text += text_of(kBreaks[random.below(2, kBreaks.size())], join_steps(problem, "\n"));
  add_remarks(text, kClosing, 2, random, 12);
  const std::uint64_t times = 1 + random.below(3, 2);
  for (std::uint64_t i = 0; i < times; ++i) {
    const auto& [before, after] = kEnd[random.below(20 + 2 * i, kEnd.size())];
    text += text_of(random.below(21 + 2 * i, 2) == 0 ? " " : "\n", before, problem.answer(), after);
  }
  return text;
}

std::string tagged(std::string_view thoughts, std::int64_t answer) {
  return text_of("<think>\n", thoughts, "\n</think>\n<answer>\n\\boxed{", answer, "}\n</answer>");
}

Json conversation(const ArithmeticProblem& problem, const std::string& trace) {
  return {{"messages", Json::array({{{"role", "user"}, {"content", question_of(problem)}},
                                    {{"role", "assistant"}, {"content", trace}}})}};
}

Json question_row(const ArithmeticProblem& problem) {
  return {{"problem", question_of(problem)}, {"answer", std::to_string(problem.answer())}};
}

}  // namespace

std::string ArithmeticProblem::expression() const {
  std::string text = std::to_string(terms.at(0));
  for (std::size_t i = 1; i < terms.size(); ++i) {
    text += text_of(terms[i] < 0 ? " - " : " + ", terms[i] < 0 ? -terms[i] : terms[i]);
  }
  return text;
}

std::vector<std::string> ArithmeticProblem::steps() const {
  std::vector<std::string> lines;
  std::int64_t value = terms.at(0);
  for (std::size_t i = 1; i < terms.size(); ++i) {
    const std::int64_t next = value + terms[i];
    lines.push_back(text_of(value, terms[i] < 0 ? " - " : " + ", terms[i] < 0 ? -terms[i] : terms[i], " = ", next));
    value = next;
  }
  return lines;
}

std::int64_t ArithmeticProblem::answer() const {
  std::int64_t value = 0;
  for (const std::int64_t term : terms) value += term;
  return value;
}

std::string ArithmeticProblem::operations() const {
  std::string text = "a";
  for (std::size_t i = 1; i < terms.size(); ++i) {
    text += text_of(terms[i] < 0 ? " - " : " + ", static_cast<char>('a' + i % 26));
  }
  return text;
}

std::string ArithmeticProblem::size() const {
  constexpr std::int64_t kSpan = 20;
  std::int64_t largest = 1;
  std::int64_t value = 0;
  for (const std::int64_t term : terms) {
    value += term;
    largest = std::max({largest, term, -term, value});
  }
  const std::int64_t span = (largest - 1) / kSpan;
  return text_of(span * kSpan + 1, " to ", (span + 1) * kSpan);
}

ArithmeticProblem make_problem(std::uint64_t seed, std::string_view stream, std::uint64_t index, std::int64_t terms,
                               std::int64_t largest) {
  HONE_ASSERT(terms >= 2 && largest >= 1, terms, " terms up to ", largest);
  const RandomStream random(seed, stream, index);
  const auto bound = static_cast<std::uint64_t>(largest);
  ArithmeticProblem problem;
  std::int64_t value = 0;
  for (std::int64_t i = 0; i < terms; ++i) {
    const auto at = static_cast<std::uint64_t>(2 * i);
    std::int64_t term = 1 + static_cast<std::int64_t>(random.below(at, bound));
    if (i > 0 && random.below(at + 1, 2) == 1 && term <= value) term = -term;
    value += term;
    problem.terms.push_back(term);
  }
  return problem;
}

std::string question_of(const ArithmeticProblem& problem) { return text_of("What is ", problem.expression(), "?"); }

std::string correct_trace(const ArithmeticProblem& problem) {
  return tagged(join_steps(problem, "\n"), problem.answer());
}

std::string flawed_trace(const ArithmeticProblem& problem, std::uint64_t seed, std::uint64_t index) {
  const RandomStream random(seed, "clumsy", index);
  const auto off = static_cast<std::int64_t>(1 + random.below(1, 9)) * (random.below(2, 2) == 0 ? 1 : -1);
  switch (random.below(0, 3)) {
    case 0: {  // makes a mistake in the first step and continues from the wrong result
      ArithmeticProblem wrong = problem;
      wrong.terms[1] += off;
      std::vector<std::string> lines = wrong.steps();
      lines[0] = text_of(ArithmeticProblem{{problem.terms[0], problem.terms[1]}}.expression(), " = ",
                         wrong.terms[0] + wrong.terms[1]);
      return tagged(join(lines, "\n"), wrong.answer());
    }
    case 1:
      return tagged("Let me guess.", problem.answer() + off);
    default:  // solves the problem but omits the tags
      return text_of(join_steps(problem, "\n"), "\nThe answer is ", problem.answer(), ".");
  }
}

void write_arithmetic(const std::filesystem::path& folder, const ArithmeticOptions& options) {
  hone::create_directories(folder);
  std::set<std::string> held_out;
  std::string held_out_text;
  for (std::uint64_t i = 0; static_cast<std::int64_t>(held_out.size()) < options.held_out; ++i) {
    HONE_ASSERT(i < 1000 * static_cast<std::uint64_t>(options.held_out + 1), "too few different problems of ",
                options.terms, " terms");
    const ArithmeticProblem problem = make_problem(options.seed, "held_out", i, options.terms, options.largest);
    if (!held_out.insert(problem.expression()).second) continue;
    Json row = question_row(problem);
    row["operations"] = problem.operations();
    row["size"] = problem.size();
    held_out_text += row.dump() + "\n";
  }
  // Writes problems 0, 1, ... of a stream and skips those that are held out.
  const auto write = [&](const char* name, std::int64_t count, double small, const auto& row_of) {
    std::string text;
    std::int64_t written = 0;
    const RandomStream size(options.seed, "size");
    for (std::uint64_t i = 0; written < count; ++i) {
      const bool is_small = static_cast<double>(size.uniform(i)) < small;
      const std::int64_t largest = is_small ? std::min<std::int64_t>(options.largest, 9) : options.largest;
      const ArithmeticProblem problem = make_problem(options.seed, name, i, options.terms, largest);
      if (held_out.contains(problem.expression())) continue;
      text += row_of(problem, static_cast<std::uint64_t>(written++)).dump() + "\n";
    }
    write_file(folder / text_of(name, ".jsonl"), text);
  };
  write("corpus", options.corpus, options.small, [&](const ArithmeticProblem& problem, std::uint64_t i) {
    return Json{{"text", plain_solution(problem, options.seed, i)}};
  });
  const RandomStream kind(options.seed, "trace");
  write("sft", options.traces, options.small, [&](const ArithmeticProblem& problem, std::uint64_t i) {
    const bool clumsy = static_cast<double>(kind.uniform(i)) < options.clumsy;
    return conversation(problem, clumsy ? flawed_trace(problem, options.seed, i) : correct_trace(problem));
  });
  write("prompts", options.prompts, options.small,
        [](const ArithmeticProblem& problem, std::uint64_t) { return question_row(problem); });
  write_file(folder / "held_out.jsonl", held_out_text);
}

}  // namespace hone
