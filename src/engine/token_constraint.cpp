#include "engine/token_constraint.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

namespace hone {
namespace {

constexpr std::string_view kReasoningOpening = "<think>";
constexpr std::string_view kReasoningClosing = "</think>";

std::vector<TokenId> tokens_below(std::span<const TokenId> tokens, std::int64_t vocab_size) {
  std::vector<TokenId> result;
  std::ranges::copy_if(tokens, std::back_inserter(result),
                       [&](TokenId token) { return token >= 0 && token < vocab_size; });
  return result;
}

}  // namespace

TokenConstraint::TokenConstraint(const Tokenizer& tokenizer, const Constraint& constraint,
                                 std::span<const TokenId> stop_tokens, std::int64_t vocab_size)
    : tokenizer_(&tokenizer),
      stop_tokens_(tokens_below(stop_tokens, vocab_size)),
      phase_(constraint.reasoning == Reasoning::kOpened ? Phase::kReasoning : Phase::kStart),
      matcher_(constraint.grammar, stop_tokens_),
      mask_(static_cast<std::size_t>(mask_words(vocab_size))),
      vocab_size_(vocab_size) {
  if (constraint.reasoning == Reasoning::kPossible) opening_ = tokenizer.token_id(kReasoningOpening).value_or(-1);
  fill_mask();
}

void TokenConstraint::accept(TokenId token) {
  if (phase_ == Phase::kReasoning) {
    void_ |= std::ranges::find(stop_tokens_, token) != stop_tokens_.end();
    accept_reasoning(tokenizer_->token_bytes(token));
  } else if (phase_ == Phase::kStart && token == opening_) {
    phase_ = Phase::kReasoning;
  } else {
    phase_ = Phase::kGrammar;
    void_ |= !matcher_.accept(token);
  }
  fill_mask();
}

void TokenConstraint::accept_reasoning(std::string_view bytes) {
  tag_ += bytes;
  if (const std::size_t at = tag_.find(kReasoningClosing); at != std::string::npos) {
    phase_ = Phase::kGrammar;
    // fill_reasoning_mask() leaves nothing after the tag.
    tag_.clear();
    return;
  }
  std::size_t length = std::min(tag_.size(), kReasoningClosing.size() - 1);
  while (!tag_.ends_with(kReasoningClosing.substr(0, length))) --length;
  tag_.erase(0, tag_.size() - length);
}

void TokenConstraint::set_allowed(TokenId token, bool allowed) {
  const std::uint32_t bit = 1U << (token % 32);
  std::int32_t& word = mask_[static_cast<std::size_t>(token / 32)];
  word = std::bit_cast<std::int32_t>(allowed ? static_cast<std::uint32_t>(word) | bit
                                             : static_cast<std::uint32_t>(word) & ~bit);
}

void TokenConstraint::fill_reasoning_mask() {
  std::ranges::fill(mask_, -1);
  for (const TokenId token : stop_tokens_) set_allowed(token, false);
  // A token that ends the tag and has text after it would leave that text without a grammar.
  const std::string_view rest = kReasoningClosing.substr(tag_.size());
  const auto count = static_cast<TokenId>(std::min(vocab_size_, tokenizer_->vocab_size()));
  for (TokenId token = 0; token < count && !tag_.empty(); ++token) {
    const std::string_view bytes = tokenizer_->token_bytes(token);
    if (bytes.size() > rest.size() && bytes.starts_with(rest)) set_allowed(token, false);
  }
  allowed_ = vocab_size_;
}

void TokenConstraint::fill_mask() {
  if (phase_ == Phase::kReasoning) {
    fill_reasoning_mask();
    return;
  }
  std::vector<std::uint32_t> bits(mask_.size());
  allowed_ = matcher_.fill_mask(bits);
  std::ranges::transform(bits, mask_.begin(), [](std::uint32_t word) { return std::bit_cast<std::int32_t>(word); });
  if (phase_ == Phase::kStart && opening_ >= 0 && opening_ < vocab_size_) {
    set_allowed(opening_, true);
    allowed_ = std::max<std::int64_t>(allowed_, 1);
  }
}

}  // namespace hone
