// Trains a BPE or character tokenizer from text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace hone {

struct BpeTrainerOptions {
  enum class Kind {
    kGpt2,        // bytes with GPT-2's split pattern
    kQwen2,       // bytes with NFC and Qwen2's split pattern
    kCharacters,  // each character that occurs is a token, by code point from id 0; special tokens follow; no merges
  };
  Kind kind = Kind::kGpt2;
  std::int64_t vocab_size = 32'000;         // includes special tokens and the 256 bytes; ignored for kCharacters
  std::int64_t min_frequency = 0;           // minimum count of a pair to be merged
  std::vector<std::string> special_tokens;  // they get the first ids, in this order
  std::string eos_token;                    // one of special_tokens, or empty
};

// Trains byte-level BPE (Sennrich et al. 2016). Ties are broken like in Hugging Face's BpeTrainer (the smaller pair of
// ids first), so the same text yields the same vocabulary and merges.
class BpeTrainer {
 public:
  explicit BpeTrainer(BpeTrainerOptions options);  // throws Error

  // Counts the words of one document; invalid UTF-8 is replaced by U+FFFD.
  void add(std::string_view document);
  // Returns the trained tokenizer. It has fewer than vocab_size tokens if the text has too few pairs of min_frequency.
  // Throws Error if no text was added.
  [[nodiscard]] Tokenizer train() const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>{}(word); }
  };

  BpeTrainerOptions options_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> words_;
};

}  // namespace hone
