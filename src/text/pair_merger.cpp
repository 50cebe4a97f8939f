#include "text/pair_merger.h"

#include <algorithm>

namespace hone {
namespace {

std::uint64_t pair_of(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// Heap order: the most frequent pair on top, ties by smaller ids. (The order of duplicates of a pair is irrelevant:
// they merge different words into the same symbol.)
constexpr auto kLess = [](const auto& a, const auto& b) {
  return a.count != b.count ? a.count < b.count : a.pair > b.pair;
};

}  // namespace

PairMerger::PairMerger(std::vector<std::string> symbols) : symbols_(std::move(symbols)) {
  for (std::size_t id = 0; id < symbols_.size(); ++id) ids_.emplace(symbols_[id], static_cast<TokenId>(id));
}

void PairMerger::add_word(std::vector<TokenId> word, std::int64_t count) {
  if (word.size() > 1) words_.push_back({std::move(word), count});
}

void PairMerger::push(Candidate candidate) {
  heap_.push_back(std::move(candidate));
  std::push_heap(heap_.begin(), heap_.end(), kLess);
}

PairMerger::Candidate PairMerger::pop() {
  std::pop_heap(heap_.begin(), heap_.end(), kLess);
  Candidate top = std::move(heap_.back());
  heap_.pop_back();
  return top;
}

void PairMerger::add_change(std::uint32_t word, const Change& change) {
  counts_[change.pair] += change.amount * words_[word].count;
  if (change.amount < 0) return;
  std::vector<std::uint32_t>& places = new_places_[change.pair];
  if (places.empty() || places.back() != word) places.push_back(word);  // all changes of a word come together
}

void PairMerger::push_candidates() {
  for (auto& [pair, places] : new_places_) {
    const std::int64_t count = counts_[pair];
    if (count > 0) push({pair, count, std::move(places)});
  }
  new_places_.clear();
}

void PairMerger::count_pairs() {
  for (std::uint32_t index = 0; index < words_.size(); ++index) {
    const std::vector<TokenId>& symbols = words_[index].symbols;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) add_change(index, {pair_of(symbols[i], symbols[i + 1]), 1});
  }
  push_candidates();
}

// Replaces the pair from left to right and records in changes_ which neighbouring pairs appeared and disappeared.
void PairMerger::merge_word(Word& word, Pair pair, TokenId merged) {
  const auto left = static_cast<TokenId>(pair >> 32);
  const auto right = static_cast<TokenId>(pair & 0xFFFFFFFFu);
  std::vector<TokenId>& symbols = word.symbols;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < symbols.size();) {
    if (i + 1 >= symbols.size() || symbols[i] != left || symbols[i + 1] != right) {
      symbols[kept++] = symbols[i++];
      continue;
    }
    if (kept > 0) {
      changes_.push_back({pair_of(symbols[kept - 1], left), -1});
      changes_.push_back({pair_of(symbols[kept - 1], merged), 1});
    }
    if (i + 2 < symbols.size()) {
      changes_.push_back({pair_of(right, symbols[i + 2]), -1});
      changes_.push_back({pair_of(merged, symbols[i + 2]), 1});
    }
    symbols[kept++] = merged;
    i += 2;
  }
  symbols.resize(kept);
}

void PairMerger::merge(const Candidate& top, TokenId merged) {
  for (const std::uint32_t index : top.words) {
    changes_.clear();
    merge_word(words_[index], top.pair, merged);
    for (const Change& change : changes_) add_change(index, change);
  }
  push_candidates();
}

void PairMerger::run(std::int64_t vocab_size, std::int64_t min_frequency) {
  count_pairs();
  while (static_cast<std::int64_t>(symbols_.size()) < vocab_size && !heap_.empty()) {
    Candidate top = pop();
    if (const std::int64_t count = counts_[top.pair]; top.count != count) {  // later merges removed some occurrences
      top.count = count;
      push(std::move(top));
      continue;
    }
    if (top.count < 1 || top.count < min_frequency) break;
    const auto left = static_cast<TokenId>(top.pair >> 32);
    const auto right = static_cast<TokenId>(top.pair & 0xFFFFFFFFu);
    std::string text = symbols_[static_cast<std::size_t>(left)] + symbols_[static_cast<std::size_t>(right)];
    const auto [entry, is_new] = ids_.emplace(text, static_cast<TokenId>(symbols_.size()));
    const TokenId merged = entry->second;
    if (is_new) symbols_.push_back(std::move(text));
    merges_.emplace_back(left, right);
    merge(top, merged);
  }
}

}  // namespace hone
