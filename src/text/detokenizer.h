// Text of a growing list of ids, a piece at a time.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "text/tokenizer.h"

namespace hone {

class TokenStream;

// The pieces of all calls, joined, equal Tokenizer::decode of all ids; none ends within a UTF-8 character. Bytes that
// are no character come out as U+FFFD, as decode's do.
class Detokenizer {
 public:
  explicit Detokenizer(Tokenizer tokenizer, bool skip_special_tokens = false);
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;
  ~Detokenizer();

  // The text that `id` completes; empty while a character waits for more bytes.
  [[nodiscard]] std::string add(TokenId id);
  [[nodiscard]] std::string add(std::span<const TokenId> ids);
  // What is left at the end: a cut character, as U+FFFD. The detokenizer then starts anew.
  [[nodiscard]] std::string flush();

 private:
  Tokenizer tokenizer_;  // holds the stream's decoder
  bool skip_special_tokens_;
  std::unique_ptr<TokenStream> stream_;
};

}  // namespace hone
