// Fuzz target: a kind of grammar and its description. What is accepted has a mask, and each allowed token is accepted.

#include "core/error.h"
#include "fuzz/target.h"
#include "grammar/grammar.h"
#include "text/bpe_trainer.h"

namespace {

using namespace hone;

constexpr std::int64_t kMostSteps = 20;

constexpr TokenId kVocab = 300;  // logits without a token are at the end

const Tokenizer& fuzzed_tokenizer() {
  static const Tokenizer tokenizer = [] {
    BpeTrainer trainer({.vocab_size = kVocab, .special_tokens = {"<|end|>"}, .eos_token = "<|end|>"});
    trainer.add("{\"name\": true, \"a\": null}");
    return trainer.train();
  }();
  return tokenizer;
}

// Follows the grammar by the token after `first`, in a circle, that is allowed at each step.
void follow(const std::shared_ptr<const Grammar>& grammar, std::uint8_t first) {
  TokenMatcher matcher(grammar, {0});
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(mask_words(kVocab)));
  for (std::int64_t step = 0; step < kMostSteps && matcher.fill_mask(mask) > 0; ++step) {
    TokenId token = (first + static_cast<TokenId>(step) * 37) % kVocab;
    while ((mask[static_cast<std::size_t>(token / 32)] >> (token % 32) & 1U) == 0) token = (token + 1) % kVocab;
    HONE_ASSERT(matcher.accept(token), "token ", token, " is allowed and not accepted");
  }
}

}  // namespace

HONE_FUZZ_TARGET(grammar)(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text = fuzz::as_text(data + 2, size - 2);
  const auto kind = static_cast<GrammarKind>(data[0] % 5);
  GrammarCompiler compiler(fuzzed_tokenizer(), kVocab);  // a new one, so that its threads have ended afterwards
  fuzz::accepts([&] { follow(compiler.compile({kind, std::string(text), data[0] < 128}), data[1]); });
  return 0;
}
