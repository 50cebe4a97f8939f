// Grammars that restrict what a model writes, and matchers that say which token may come next. xgrammar does the work
// (https://github.com/mlc-ai/xgrammar); grammar.cpp is the only source that includes its headers.
#pragma once

#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

enum class GrammarKind : std::uint8_t {
  kJsonSchema,     // `text` is a JSON schema
  kRegex,          // `text` is a regular expression that the whole output matches
  kChoice,         // `text` is a JSON array of strings, one of which is the output
  kGrammar,        // `text` is EBNF with a rule named root, or Lark's notation if it has no "::="
  kStructuralTag,  // `text` is xgrammar's JSON of tags and the formats between them
};

// A description of texts that a model may write.
struct GrammarSpec {
  GrammarKind kind = GrammarKind::kJsonSchema;
  std::string text;
  bool strict = true;  // kJsonSchema: objects have no other properties than those that the schema names

  auto operator<=>(const GrammarSpec&) const = default;
};

// Most bytes of a description, and most levels of brackets in it.
inline constexpr std::size_t kMostGrammarBytes = std::size_t{128} * 1024;
inline constexpr int kMostGrammarDepth = 64;
// Most repetitions that a description may ask for in total, nested ones multiplied: {2,5} and maxItems are counted,
// +, * and unbounded lists are not.
inline constexpr std::int64_t kMostRepetitions = 1'000'000;

// A description compiled for a vocabulary. Immutable; may be used by several threads.
class Grammar {
 public:
  struct Impl;
  explicit Grammar(std::unique_ptr<Impl> impl);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;
  [[nodiscard]] std::size_t bytes() const;  // memory that it takes
  [[nodiscard]] const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Limits of a GrammarCompiler.
struct GrammarLimits {
  std::size_t cache_bytes = std::size_t{256} << 20;           // compiled grammars that are kept
  std::chrono::milliseconds wait = std::chrono::seconds(30);  // for a compilation
};

// Compiles descriptions for one tokenizer and keeps those that were used last. Thread-safe.
class GrammarCompiler {
 public:
  // A mask has a bit for each of `vocab_size` logits. Those without a token in `tokenizer`, and special tokens, are
  // never allowed.
  GrammarCompiler(const Tokenizer& tokenizer, std::int64_t vocab_size, const GrammarLimits& limits = {});
  // Waits for the compilations under way.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Throws Error that says what is wrong if the description is not valid, has parts that would be ignored, exceeds one
  // of the limits above, or allows no text that the vocabulary can write. A compilation that takes longer than
  // GrammarLimits::wait is refused but continues, so that a later call may find its result. Two may run concurrently.
  [[nodiscard]] std::shared_ptr<const Grammar> compile(const GrammarSpec& spec);

 private:
  struct Vocabulary;
  struct Entry {
    GrammarSpec spec;
    std::shared_ptr<const Grammar> grammar;
  };
  using Result = std::shared_future<std::shared_ptr<const Grammar>>;

  [[nodiscard]] std::shared_ptr<const Grammar> compile_now(const GrammarSpec& spec) const;
  // Returns the compilation of a description under way, or starts one. Requires mutex_.
  [[nodiscard]] Result result_of(const GrammarSpec& spec, std::unique_lock<std::mutex>& lock);
  void run(const GrammarSpec& spec, std::promise<std::shared_ptr<const Grammar>> promise);
  void keep(const GrammarSpec& spec, const std::shared_ptr<const Grammar>& grammar);

  std::shared_ptr<const Vocabulary> vocabulary_;
  const GrammarLimits limits_;
  std::mutex mutex_;  // guards the following
  std::condition_variable ended_;
  std::list<Entry> entries_;  // the one used last is the first
  std::map<GrammarSpec, std::list<Entry>::iterator> places_;
  std::size_t bytes_ = 0;
  std::map<GrammarSpec, Result> under_way_;
  std::map<std::thread::id, std::thread> threads_;  // of compilations under way, and `idle_` ones
  std::vector<std::thread::id> idle_;               // whose compilation is over
};

// The number of 32-bit words of a mask.
[[nodiscard]] constexpr std::int64_t mask_words(std::int64_t vocab_size) { return (vocab_size + 31) / 32; }

// Follows the tokens of one completion. Not thread-safe.
class TokenMatcher {
 public:
  // `stop_tokens` end the completion, and may come only where the grammar may end.
  TokenMatcher(std::shared_ptr<const Grammar> grammar, std::vector<TokenId> stop_tokens);
  ~TokenMatcher();
  TokenMatcher(TokenMatcher&&) noexcept;
  TokenMatcher& operator=(TokenMatcher&&) noexcept;

  // Takes the next token. Returns false, and stays where it is, if the grammar does not allow it there.
  [[nodiscard]] bool accept(TokenId token);
  // Takes a text as if it consisted of tokens. Returns false, and stays where it is, if the grammar does not allow it.
  [[nodiscard]] bool accept_text(std::string_view text);
  // Sets a bit for each token that may come next: bit i % 32 of word i / 32. Returns the number of bits that are set;
  // 0: there is none, because the text is complete and there is no stop token.
  std::int64_t fill_mask(std::span<std::uint32_t> mask);
  // Returns true if the text so far is complete.
  [[nodiscard]] bool may_end() const;
  // Returns true once a stop token has been accepted.
  [[nodiscard]] bool is_finished() const;
  // Forgets the last `tokens` calls of accept() and accept_text() that returned true.
  void roll_back(std::int64_t tokens);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
