// Tokenised examples (documents), stored end to end in flat arrays.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

// One example as the tokenizer produces it.
struct TokenizedExample {
  std::vector<TokenId> tokens;          // [tokens]
  std::vector<std::uint8_t> is_target;  // [tokens]: 1 if token t is a target of the loss; empty: all are
};

// One example of an ExampleSet; refers to the set's memory.
struct ExampleView {
  std::span<const TokenId> tokens;
  std::span<const std::uint8_t> is_target;  // [tokens]; empty: all tokens are targets
};

// Examples end to end: example i is tokens [offsets[i], offsets[i + 1]). A cheap handle on shared, immutable memory,
// which is either built by ExampleSetBuilder or a mapped file.
class ExampleSet {
 public:
  ExampleSet() = default;
  // `tokens` has offsets.back() elements, `is_target` as many or none, and `offsets` examples + 1, ascending from 0.
  // `owner` keeps all three alive.
  ExampleSet(std::span<const TokenId> tokens, std::span<const std::uint8_t> is_target,
             std::span<const std::int64_t> offsets, std::shared_ptr<const void> owner);

  [[nodiscard]] std::int64_t size() const;  // number of examples
  [[nodiscard]] std::int64_t token_count() const { return static_cast<std::int64_t>(tokens_.size()); }
  [[nodiscard]] std::int64_t length(std::int64_t example) const;
  [[nodiscard]] ExampleView operator[](std::int64_t example) const;
  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const std::uint8_t> is_target() const { return is_target_; }
  [[nodiscard]] std::span<const std::int64_t> offsets() const { return offsets_; }

  // Returns tokens [begin, end) of the stream, sharing its memory. An example that crosses a bound is shortened.
  [[nodiscard]] ExampleSet slice(std::int64_t begin, std::int64_t end) const;

 private:
  std::span<const TokenId> tokens_;
  std::span<const std::uint8_t> is_target_;
  std::span<const std::int64_t> offsets_;
  std::shared_ptr<const void> owner_;
};

// Collects examples and builds an ExampleSet from them.
class ExampleSetBuilder {
 public:
  // Throws Defect if the mask is neither empty nor as long as the tokens.
  void add(ExampleView example);
  void add(const TokenizedExample& example) { add(ExampleView{example.tokens, example.is_target}); }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  [[nodiscard]] ExampleSet finish() &&;

 private:
  std::vector<TokenId> tokens_;
  std::vector<std::uint8_t> is_target_;   // [tokens_]; empty until the first masked example
  std::vector<std::int64_t> offsets_{0};  // [examples + 1]
};

}  // namespace hone
