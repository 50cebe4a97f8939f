// Decodes a growing list of token ids piece by piece.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "text/tokenizer.h"

namespace hone {

class TokenStream;

// The pieces of all calls, joined, equal Tokenizer::decode of all ids. No piece ends within a UTF-8 character. Invalid
// bytes become U+FFFD, as in decode.
class Detokenizer {
 public:
  explicit Detokenizer(Tokenizer tokenizer, bool skip_special_tokens = false);
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;
  ~Detokenizer();

  // Returns the text that `id` completes; empty while a character still lacks bytes.
  [[nodiscard]] std::string add(TokenId id);
  [[nodiscard]] std::string add(std::span<const TokenId> ids);
  // Returns the text still held back, with an incomplete character as U+FFFD, and resets the detokenizer.
  [[nodiscard]] std::string flush();

 private:
  Tokenizer tokenizer_;  // owns the decoder that stream_ uses
  bool skip_special_tokens_;
  std::unique_ptr<TokenStream> stream_;
};

}  // namespace hone
