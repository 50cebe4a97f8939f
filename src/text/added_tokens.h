// Tokens that are recognised in the text before any merging: special tokens and those added to a trained vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool single_word = false;  // not next to a word character
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and that behind it
  bool normalized = true;    // is looked for in the normalised text
  bool special = false;
};

// Finds a set of added tokens in text: at each place the longest, from left to right.
class AddedTokenMatcher {
 public:
  // `content` overrides the token's own (its normalised form).
  void add(const AddedToken& token, std::string_view content);
  [[nodiscard]] bool empty() const { return nodes_.size() == 1; }

  struct Segment {
    std::string_view text;
    TokenId id;  // -1: text between tokens
  };
  // Covers valid UTF-8 from begin to end.
  [[nodiscard]] std::vector<Segment> split(std::string_view text) const;

 private:
  struct Node {
    std::unordered_map<unsigned char, std::uint32_t> children;
    int token = -1;  // index into tokens_
  };
  // The token that begins at `at`, and its length.
  [[nodiscard]] std::pair<int, std::size_t> longest(std::string_view text, std::size_t at) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> starts_{};
  std::vector<AddedToken> tokens_;
};

}  // namespace hone
