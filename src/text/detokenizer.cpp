#include "text/detokenizer.h"

#include <utility>

#include "text/unicode.h"

namespace hone {

Detokenizer::Detokenizer(Tokenizer tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

std::string Detokenizer::add(TokenId id) { return add(std::span(&id, 1)); }

std::string Detokenizer::add(std::span<const TokenId> ids) {
  for (const TokenId id : ids) {
    if (!skip_special_tokens_ || !tokenizer_.is_special(id)) pending_.append(tokenizer_.token_bytes(id));
  }
  std::string text;
  for (std::size_t at = 0; at < pending_.size();) {
    const Utf8Unit unit = scan_utf8(pending_, at);
    if (unit.cut) {
      pending_.erase(0, at);
      return text;
    }
    text.append(unit.valid ? std::string_view(pending_).substr(at, unit.size) : kReplacementCharacter);
    at += unit.size;
  }
  pending_.clear();
  return text;
}

std::string Detokenizer::flush() { return replace_invalid_utf8(std::exchange(pending_, {})); }

}  // namespace hone
