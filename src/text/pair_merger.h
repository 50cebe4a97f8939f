// The training loop of byte-pair encoding: repeatedly merges the most frequent pair of neighbouring symbols.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

// Keeps the counts of all pairs up to date, so a merge only visits the words that contain its pair.
class PairMerger {
 public:
  // `symbols`: the initial vocabulary by id, written in the alphabet of the tokenizer.
  explicit PairMerger(std::vector<std::string> symbols);
  void add_word(std::vector<TokenId> word, std::int64_t count);

  // Merges until there are vocab_size symbols or no pair occurs min_frequency times.
  void run(std::int64_t vocab_size, std::int64_t min_frequency);

  [[nodiscard]] const std::vector<std::string>& symbols() const { return symbols_; }
  [[nodiscard]] const std::vector<std::pair<TokenId, TokenId>>& merges() const { return merges_; }

 private:
  using Pair = std::uint64_t;  // left id << 32 | right id
  struct Word {
    std::vector<TokenId> symbols;
    std::int64_t count;
  };
  struct Candidate {
    Pair pair;
    std::int64_t count;
    std::vector<std::uint32_t> words;  // words that contained the pair when this candidate was created
  };
  struct Change {
    Pair pair;
    int amount;
  };

  void count_pairs();
  void merge(const Candidate& top, TokenId merged);
  void merge_word(Word& word, Pair pair, TokenId merged);
  void add_change(std::uint32_t word, const Change& change);
  void push_candidates();
  void push(Candidate candidate);
  Candidate pop();

  std::vector<std::string> symbols_;
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<Word> words_;
  std::vector<std::pair<TokenId, TokenId>> merges_;
  std::unordered_map<Pair, std::int64_t> counts_;
  std::unordered_map<Pair, std::vector<std::uint32_t>> new_places_;
  std::vector<Candidate> heap_;
  std::vector<Change> changes_;
};

}  // namespace hone
