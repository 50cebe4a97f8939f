// Recognizes added tokens in a text before any merging: special tokens, and tokens added to a trained vocabulary.
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
  bool single_word = false;  // matches only if no word character is adjacent
  bool lstrip = false;       // the match includes the white space before it
  bool rstrip = false;       // the match includes the white space after it
  bool normalized = true;    // searched in the normalized text instead of the original
  bool special = false;
};

// Finds a set of added tokens in a text, from left to right; at each position the longest token matches.
class AddedTokenMatcher {
 public:
  // Adds a token that is matched as `content`, which replaces the token's own content (its normalized form).
  void add(const AddedToken& token, std::string_view content);
  [[nodiscard]] bool empty() const { return nodes_.size() == 1; }

  struct Segment {
    std::string_view text;
    TokenId id;  // -1: text between tokens
  };
  // Splits valid UTF-8 into segments that cover it from begin to end.
  [[nodiscard]] std::vector<Segment> split(std::string_view text) const;

 private:
  struct Node {
    std::unordered_map<unsigned char, std::uint32_t> children;
    int token = -1;  // index into tokens_
  };
  // Returns the index and the length of the longest token that begins at `at`.
  [[nodiscard]] std::pair<int, std::size_t> longest(std::string_view text, std::size_t at) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> starts_{};
  std::vector<AddedToken> tokens_;
};

}  // namespace hone
