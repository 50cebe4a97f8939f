// Tokenised examples (documents) in flat arrays.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

// One example as it leaves the tokenizer. is_target[t] = 1: token t is to be predicted; empty: all tokens are.
struct TokenizedExample {
  std::vector<TokenId> tokens;
  std::vector<std::uint8_t> is_target;
};

// The same, seen inside an ExampleSet.
struct ExampleView {
  std::span<const TokenId> tokens;
  std::span<const std::uint8_t> is_target;  // empty: all tokens
};

// Examples end to end: example i is tokens [offsets[i], offsets[i + 1]). A cheap handle on memory that is shared and
// never changes (built by ExampleSetBuilder, or a mapped file).
class ExampleSet {
 public:
  ExampleSet() = default;
  // tokens, is_target: [offsets.back()], is_target may be empty; offsets: [examples + 1], from 0, ascending. `owner`
  // keeps all three alive.
  ExampleSet(std::span<const TokenId> tokens, std::span<const std::uint8_t> is_target,
             std::span<const std::int64_t> offsets, std::shared_ptr<const void> owner);

  [[nodiscard]] std::int64_t size() const;  // examples
  [[nodiscard]] std::int64_t token_count() const { return static_cast<std::int64_t>(tokens_.size()); }
  [[nodiscard]] std::int64_t length(std::int64_t example) const;
  [[nodiscard]] ExampleView operator[](std::int64_t example) const;
  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const std::uint8_t> is_target() const { return is_target_; }
  [[nodiscard]] std::span<const std::int64_t> offsets() const { return offsets_; }

  // The stream's tokens [begin, end), sharing memory; an example that a bound cuts becomes a shorter one.
  [[nodiscard]] ExampleSet slice(std::int64_t begin, std::int64_t end) const;

 private:
  std::span<const TokenId> tokens_;
  std::span<const std::uint8_t> is_target_;
  std::span<const std::int64_t> offsets_;
  std::shared_ptr<const void> owner_;
};

class ExampleSetBuilder {
 public:
  // Throws Defect where the mask is neither empty nor as long as the tokens.
  void add(ExampleView example);
  void add(const TokenizedExample& example) { add(ExampleView{example.tokens, example.is_target}); }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  [[nodiscard]] ExampleSet finish() &&;

 private:
  std::vector<TokenId> tokens_;
  std::vector<std::uint8_t> is_target_;  // empty until the first masked example
  std::vector<std::int64_t> offsets_{0};
};

}  // namespace hone
