#include "text/bpe_model.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <queue>

#include "core/error.h"
#include "core/unicode.h"
#include "text/byte_alphabet.h"

namespace hone {
namespace {

constexpr std::size_t kMostCachedWords = 1 << 16;
constexpr std::size_t kLongestCachedWord = 64;  // bytes
constexpr std::size_t kShortWord = 48;          // symbols: up to this length a scan is faster than a heap
constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::uint64_t mixed(std::uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return key ^ key >> 32;
}

}  // namespace

WordCache::Slot WordCache::key_of(std::string_view word) {
  const auto load = [&]<class Word>(Word value, std::size_t at) -> std::uint64_t {
    std::memcpy(&value, word.data() + at, sizeof value);
    return value;
  };
  const std::size_t size = word.size();
  Slot key{.size = static_cast<std::uint8_t>(size)};
  if (size >= 8) {
    key.low = load(std::uint64_t{}, 0);
    key.high = load(std::uint64_t{}, size - 8);
  } else if (size >= 4) {
    key.low = load(std::uint32_t{}, 0);
    key.high = load(std::uint32_t{}, size - 4);
  } else {
    key.low = static_cast<unsigned char>(word.front());
    key.high = static_cast<std::uint64_t>(static_cast<unsigned char>(word[size / 2])) << 8 |
               static_cast<unsigned char>(word.back());
  }
  return key;
}

std::size_t WordCache::place_of(const Slot& key) {
  std::uint64_t hash = (key.low + key.size) * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
  hash = (hash ^ key.high) * 0xD6E8FEB86659FD93u;
  return static_cast<std::size_t>(hash >> 40) % kSlots;
}

bool WordCache::lookup(std::string_view word, std::vector<TokenId>& ids) const {
  if (word.size() > kLongestCachedWord || word.empty()) return false;
  if (word.size() <= 16 && !slots_.empty()) {
    const Slot key = key_of(word);
    const std::size_t place = place_of(key);
    for (const std::size_t at : {place, place ^ 1}) {
      const Slot& slot = slots_[at];
      if (slot.low != key.low || slot.high != key.high || slot.size != key.size) continue;
      ids.push_back(slot.ids[0]);
      for (std::size_t i = 1; i < slot.count; ++i) ids.push_back(slot.ids[i]);
      return true;
    }
  }
  const auto found = entries_.find(word);
  if (found == entries_.end()) return false;
  const auto begin = ids_.begin() + found->second.offset;
  ids.insert(ids.end(), begin, begin + found->second.count);
  return true;
}

void WordCache::store(std::string_view word, const TokenId* ids, std::size_t count) {
  if (word.size() > kLongestCachedWord || word.empty()) return;
  if (word.size() <= 16 && count >= 1 && count <= 3) {
    if (slots_.empty()) slots_.resize(kSlots);
    Slot key = key_of(word);
    key.count = static_cast<std::uint8_t>(count);
    std::copy_n(ids, count, key.ids.begin());
    const std::size_t place = place_of(key);
    const bool is_free = slots_[place].size == 0, other_is_free = slots_[place ^ 1].size == 0;
    if (is_free || other_is_free || entries_.size() >= kMostCachedWords) {
      slots_[is_free || !other_is_free ? place : place ^ 1] = key;
      return;
    }
  }
  if (entries_.size() >= kMostCachedWords) return;
  entries_.emplace(word, Entry{static_cast<std::uint32_t>(ids_.size()), static_cast<std::uint32_t>(count)});
  ids_.insert(ids_.end(), ids, ids + count);
}

WordCachePool::Lease::Lease(WordCachePool& pool) : pool_(pool) {
  const std::lock_guard lock(pool_.mutex_);
  if (pool_.idle_.empty()) {
    cache_ = std::make_unique<WordCache>();
  } else {
    cache_ = std::move(pool_.idle_.back());
    pool_.idle_.pop_back();
  }
}

WordCachePool::Lease::~Lease() {
  const std::lock_guard lock(pool_.mutex_);
  pool_.idle_.push_back(std::move(cache_));
}

BpeModel::BpeModel(Vocabulary vocabulary, const Merges& merges, Options options, std::string_view where)
    : options_(std::move(options)), vocabulary_(std::move(vocabulary)) {
  std::sort(vocabulary_.begin(), vocabulary_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  byte_ids_.fill(-1);
  fallback_ids_.fill(-1);
  ids_.reserve(vocabulary_.size());
  pieces_.reserve(vocabulary_.size());
  for (std::size_t i = 0; i < vocabulary_.size(); ++i) {
    const auto& [token, id] = vocabulary_[i];
    if (i > 0 && vocabulary_[i - 1].second == id) {
      throw Error(where, text_of("the tokens ", vocabulary_[i - 1].first, " and ", token, " have the same id ", id));
    }
    if (!ids_.emplace(token, id).second) throw Error(where, text_of("the token ", token, " is listed twice"));
    std::optional<std::string> piece = options_.byte_level ? alphabet_to_bytes(token) : token;
    if (!piece) continue;
    if (options_.byte_level && piece->size() == 1) byte_ids_[static_cast<unsigned char>(piece->front())] = id;
    pieces_.emplace(std::move(*piece), id);
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const std::string name = {'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'};
    if (options_.byte_fallback) fallback_ids_[byte] = token_id(name).value_or(-1);
    if (options_.byte_fallback && options_.byte_level && byte_ids_[byte] < 0) {
      throw Error(where, text_of("model byte_fallback with ByteLevel, but without the byte ", name,
                                 " in the vocabulary, is not supported"));
    }
  }
  if (!options_.unknown_token.empty()) {
    unknown_ = token_id(options_.unknown_token);
    if (!unknown_) throw Error(where, text_of("the unk_token ", options_.unknown_token, " is not in the vocabulary"));
  }
  build_merges(merges, where);
}

void BpeModel::build_merges(const Merges& merges, std::string_view where) {
  std::uint64_t capacity = 16;
  while (capacity < merges.size() * 2) capacity *= 2;
  slots_.assign(capacity, 0);
  slot_mask_ = capacity - 1;
  merges_.reserve(merges.size());
  for (const auto& [left, right] : merges) {
    const auto a = token_id(left), b = token_id(right), merged = token_id(left + right);
    if (!a || !b || !merged) {
      throw Error(where, text_of("merge ", merges_.size(), " (", left, " ", right,
                                 ") names a token that is not in the vocabulary"));
    }
    merges_.push_back({pair_key(*a, *b), static_cast<std::uint32_t>(merges_.size()), *merged});
    std::uint64_t slot = mixed(merges_.back().pair) & slot_mask_;
    // A pair that is listed twice gets its later rank, as in the reference.
    while (slots_[slot] != 0 && merges_[slots_[slot] - 1].pair != merges_.back().pair) slot = (slot + 1) & slot_mask_;
    slots_[slot] = static_cast<std::uint32_t>(merges_.size());
  }
}

const BpeModel::Merge* BpeModel::find_merge(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  for (std::uint64_t slot = mixed(key) & slot_mask_; slots_[slot] != 0; slot = (slot + 1) & slot_mask_) {
    const Merge& merge = merges_[slots_[slot] - 1];
    if (merge.pair == key) return &merge;
  }
  return nullptr;
}

std::optional<TokenId> BpeModel::token_id(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

BpeModel::Merges BpeModel::merges() const {
  std::unordered_map<TokenId, const std::string*> names;
  for (const auto& [token, id] : vocabulary_) names.emplace(id, &token);
  Merges merges;
  merges.reserve(merges_.size());
  for (const Merge& merge : merges_) {
    merges.emplace_back(*names.at(static_cast<TokenId>(merge.pair >> 32)),
                        *names.at(static_cast<TokenId>(merge.pair & 0xFFFFFFFFu)));
  }
  return merges;
}

void BpeModel::encode(std::string_view piece, WordCache& cache, std::vector<TokenId>& ids) const {
  if (cache.lookup(piece, ids)) return;
  const std::size_t before = ids.size();
  encode_new(piece, ids);
  cache.store(piece, ids.data() + before, ids.size() - before);
}

void BpeModel::encode_new(std::string_view piece, std::vector<TokenId>& ids) const {
  if (options_.ignore_merges) {
    if (const auto found = pieces_.find(piece); found != pieces_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  std::vector<TokenId> symbols;
  append_symbols(piece, symbols);
  if (!merges_.empty()) {
    if (symbols.size() <= kShortWord) {
      merge_short(symbols);
    } else {
      merge_long(symbols);
    }
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void BpeModel::fail_outside(std::string_view piece, std::size_t at) const {
  const char32_t c = options_.byte_level ? static_cast<unsigned char>(piece[at]) : decode_utf8(piece, at).value;
  std::array<char, 9> number{};
  (void)std::snprintf(number.data(), number.size(), "%X", static_cast<unsigned>(c));
  throw Error(
      "tokenizer",
      text_of("the ", options_.byte_level ? "byte " : "character U+", number.data(), " is not in the vocabulary"),
      "use a tokenizer that covers this text");
}

void BpeModel::append_symbols(std::string_view piece, std::vector<TokenId>& symbols) const {
  symbols.reserve(piece.size());
  if (!options_.byte_level) return append_characters(piece, symbols);
  bool after_unknown = false;
  for (std::size_t at = 0; at < piece.size(); ++at) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(piece[at])];
    const bool unknown = id < 0;
    if (unknown && !unknown_) fail_outside(piece, at);
    if (!unknown || !after_unknown || !options_.fuse_unknown) symbols.push_back(unknown ? *unknown_ : id);
    after_unknown = unknown;
  }
}

// An unknown token is appended when the next known or unknown character comes. Byte-fallback tokens do not wait for it,
// as in the reference.
void BpeModel::append_characters(std::string_view piece, std::vector<TokenId>& symbols) const {
  TokenId waiting = -1;  // none
  const auto append_unknown = [&] {
    if (waiting >= 0) symbols.push_back(waiting);
    waiting = -1;
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t size = decode_utf8(piece, at).size;
    const std::string_view character = piece.substr(at, size);
    const auto is_byte = [&](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)] >= 0; };
    if (const auto found = pieces_.find(character); found != pieces_.end()) {
      append_unknown();
      symbols.push_back(found->second);
    } else if (options_.byte_fallback && std::all_of(character.begin(), character.end(), is_byte)) {
      for (const char byte : character) symbols.push_back(fallback_ids_[static_cast<unsigned char>(byte)]);
    } else {
      if (!unknown_) fail_outside(piece, at);
      if (!options_.fuse_unknown) append_unknown();
      waiting = *unknown_;
    }
    at += size;
  }
  append_unknown();
}

void BpeModel::merge_short(std::vector<TokenId>& symbols) const {
  std::array<std::uint32_t, kShortWord> ranks;
  std::array<TokenId, kShortWord> merged;
  std::size_t count = symbols.size();
  const auto look_up = [&](std::size_t i) {
    const Merge* merge = i + 1 < count ? find_merge(symbols[i], symbols[i + 1]) : nullptr;
    ranks[i] = merge == nullptr ? kNoRank : merge->rank;
    merged[i] = merge == nullptr ? -1 : merge->merged;
  };
  for (std::size_t i = 0; i < count; ++i) look_up(i);
  while (count > 1) {
    const auto best =
        static_cast<std::size_t>(std::min_element(ranks.begin(), ranks.begin() + count - 1) - ranks.begin());
    if (ranks[best] == kNoRank) break;
    symbols[best] = merged[best];
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    --count;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  symbols.resize(count);
}

// Merges with a linked list of symbols and a heap of candidate merges, ordered by rank, then from left to right.
void BpeModel::merge_long(std::vector<TokenId>& symbols) const {
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t at;
    TokenId merged;
    bool operator>(const Candidate& other) const { return std::pair(rank, at) > std::pair(other.rank, other.at); }
  };
  constexpr std::uint32_t kNone = kNoRank;
  const auto count = static_cast<std::uint32_t>(symbols.size());
  std::vector<std::uint32_t> previous(count), next(count);
  std::vector<bool> dead(count, false);
  std::vector<Candidate> storage;
  storage.reserve(count);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>{}, std::move(storage));
  const auto offer = [&](std::uint32_t at) {
    if (at == kNone || next[at] == kNone) return;
    if (const Merge* merge = find_merge(symbols[at], symbols[next[at]])) queue.push({merge->rank, at, merge->merged});
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    previous[i] = i == 0 ? kNone : i - 1;
    next[i] = i + 1 == count ? kNone : i + 1;
  }
  for (std::uint32_t i = 0; i < count; ++i) offer(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    if (dead[top.at] || next[top.at] == kNone) continue;
    const std::uint32_t right = next[top.at];
    const Merge* merge = find_merge(symbols[top.at], symbols[right]);
    if (merge == nullptr || merge->merged != top.merged) continue;  // its symbols have changed since it was pushed
    symbols[top.at] = top.merged;
    dead[right] = true;
    next[top.at] = next[right];
    if (next[right] != kNone) previous[next[right]] = top.at;
    offer(previous[top.at]);
    offer(top.at);
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!dead[i]) symbols[kept++] = symbols[i];
  }
  symbols.resize(kept);
}

}  // namespace hone
