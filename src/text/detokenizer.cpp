#include "text/detokenizer.h"

#include <utility>

#include "text/token_decoder.h"

namespace hone {

Detokenizer::Detokenizer(Tokenizer tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)),
      skip_special_tokens_(skip_special_tokens),
      stream_(std::make_unique<TokenStream>(tokenizer_.decoder())) {}

Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;
Detokenizer::~Detokenizer() = default;

std::string Detokenizer::add(TokenId id) { return add(std::span(&id, 1)); }

std::string Detokenizer::add(std::span<const TokenId> ids) {
  std::string text;
  for (const TokenId id : ids) {
    if (skip_special_tokens_ && tokenizer_.is_special(id)) continue;
    if (const std::string_view token = tokenizer_.decoder_token(id); !token.empty()) stream_->push(token, text);
  }
  return text;
}

std::string Detokenizer::flush() {
  std::string text;
  stream_->finish(text);
  return text;
}

}  // namespace hone
