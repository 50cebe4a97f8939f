// Trains a tokenizer from text.
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
    kGpt2,        // bytes, GPT-2's split pattern
    kQwen2,       // bytes, NFC and Qwen2's split pattern
    kCharacters,  // every character seen is a token, by code point from id 0; special tokens after them; no merges
  };
  Kind kind = Kind::kGpt2;
  std::int64_t vocab_size = 32'000;         // special tokens and the 256 bytes included; not read for kCharacters
  std::int64_t min_frequency = 0;           // of a pair to be merged
  std::vector<std::string> special_tokens;  // the first ids, in this order
  std::string eos_token;                    // one of them, or empty
};

// Byte-level BPE after Sennrich et al. 2016. Ties are broken as the Hugging Face BpeTrainer breaks them (the smaller
// pair of ids first), so that the same text gives the same vocabulary and merges.
class BpeTrainer {
 public:
  explicit BpeTrainer(BpeTrainerOptions options);  // throws Error

  // Counts the words of one document; invalid UTF-8 is read as U+FFFD.
  void add(std::string_view document);
  // Throws Error where nothing was added. The result may have fewer tokens than asked for, where the text has no more
  // pairs of min_frequency.
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
