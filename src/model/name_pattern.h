// Regular expressions over names of modules ("model.layers.0.self_attn.q_proj"), in the syntax of Python's re: what
// PEFT takes as target_modules and alpha_pattern. Foreign input: matching takes time in proportion to the name's length
// times the pattern's size, whatever both are (Thompson, "Regular Expression Search Algorithm", 1968).
//
// The patterns of tokenizers (text/pattern.h) are another language with another engine: they backtrack, since the split
// depends on which of several matches is taken; here the only question is whether the whole name fits.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace hone {

// Of bytes.
class ByteSet {
 public:
  void add(unsigned char first, unsigned char last);
  void add(const ByteSet& other);
  void negate();
  [[nodiscard]] bool has(unsigned char byte) const { return (bits_.at(byte >> 6) >> (byte & 63) & 1) != 0; }

 private:
  std::array<std::uint64_t, 4> bits_{};
};

class NamePattern {
 public:
  // Knows alternation, groups, classes, repetition (greedy or lazy, which is the same here), look-ahead, ^ $ \A \Z \b
  // \B, \d \s \w and their opposites, and the flags i, s, m, a and u. Throws Error, beginning with `where`, for what is
  // none, and for what Python knows besides: back references, look-behind, possessive and atomic groups, verbose mode.
  NamePattern(std::string_view source, std::string_view where);

  // Whether the whole name fits: re.fullmatch.
  [[nodiscard]] bool fits(std::string_view name) const;

 private:
  friend class NamePatternBuilder;

  enum class Kind : std::uint8_t { accept, set, fork, begin, end, boundary, no_boundary, ahead, not_ahead };
  struct Node {
    Kind kind = Kind::accept;
    int next = -1;
    int other = -1;  // fork: the second way; ahead and not_ahead: where their pattern begins
    int level = 0;   // look-aheads around it
    ByteSet set;
    std::vector<int> before;  // nodes that go on here without a byte
  };

  [[nodiscard]] bool holds(const Node& node, std::string_view name, std::size_t at, const std::vector<char>& now) const;

  std::vector<Node> nodes_;
  std::vector<std::vector<int>> levels_;  // nodes of each level
  int start_ = -1;
};

}  // namespace hone
