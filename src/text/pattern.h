// The regular expressions of tokenizer.json: a small backtracking engine over Unicode code points.
//
// It supports what split patterns use: alternation, groups, (?i:...), classes with \p{..}, \s, \d, \w and ranges,
// greedy, lazy and possessive repetition, look-ahead, ^ and $. Semantics are those of the reference (Oniguruma): the
// first alternative that leads to a match wins. Any other construct throws an Error that names it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/unicode.h"

namespace hone {

// A set of code points, as written in a character class.
class CodePointSet {
 public:
  void add(char32_t c) { add_range(c, c); }
  void add_range(char32_t first, char32_t last);
  void add_category(Category category);
  void add_pattern_space();
  void add_set(const CodePointSet& other);  // `other` may be negated
  void negate();
  void add_case_variants();  // of the letters A to Z and a to z in the set

  [[nodiscard]] bool contains_ascii(unsigned char c) const { return (ascii_[c >> 6] >> (c & 63) & 1) != 0; }
  [[nodiscard]] bool contains(char32_t c) const;
  [[nodiscard]] bool only_ascii() const;

 private:
  [[nodiscard]] bool contains_beyond_ascii(char32_t c) const;

  std::array<std::uint64_t, 2> ascii_{};  // bit set of the ASCII members, with the negation applied
  bool negated_ = false;                  // the members below are excluded instead of included
  bool space_ = false;
  std::uint32_t categories_ = 0;
  std::vector<std::pair<char32_t, char32_t>> ranges_;
  std::vector<CodePointSet> sets_;
};

// A compiled regular expression. Immutable, so threads may share it.
class Pattern {
 public:
  explicit Pattern(std::string_view source);  // throws Error
  [[nodiscard]] static Pattern literal(std::string_view text);

  struct Match {
    std::size_t begin, end;  // bytes
  };
  // Searches in one text of valid UTF-8. The total number of steps of all its searches is limited in proportion to the
  // text's length, so no pattern can hang on a text.
  class Search {
   public:
    // Both must outlive the search.
    Search(const Pattern& pattern, std::string_view text) : pattern_(pattern), text_(text) {}
    // Returns the leftmost match at or after `from`. Throws Error if the step limit is exceeded.
    [[nodiscard]] std::optional<Match> find(std::size_t from);

   private:
    const Pattern& pattern_;
    std::string_view text_;
    std::uint64_t steps_ = 0;
  };
  [[nodiscard]] const std::string& source() const { return source_; }

 private:
  friend class PatternParser;
  friend class PatternMatcher;

  enum class Kind : std::uint8_t { kSet, kChoice, kLoop, kLookAhead, kNotLookAhead, kAtomic, kBegin, kEnd, kAccept };
  enum class Greed : std::uint8_t { kGreedy, kLazy, kPossessive };
  struct Node {
    Kind kind = Kind::kAccept;
    Greed greed = Greed::kGreedy;
    int next = -1;
    int set = -1;  // kSet: index into sets_; repeated `least` to `most` times
    std::uint32_t least = 1, most = 1;
    std::vector<int> branches;  // kChoice: alternatives in the order to try; otherwise the body
    // Bit set of the bytes that a match from here can start with; `nullable`: it may also match nothing.
    std::array<std::uint64_t, 4> first{};
    bool nullable = false;
  };

  Pattern() = default;
  void compute_first_bytes();

  std::string source_;
  std::vector<Node> nodes_;  // a node is after the nodes that it leads to, except for loops
  std::vector<CodePointSet> sets_;
  int start_ = -1;
};

}  // namespace hone
