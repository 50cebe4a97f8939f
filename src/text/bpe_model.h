// Byte-pair encoding: a vocabulary and its ranked merges (Sennrich et al., "Neural machine translation of rare words
// with subword units", ACL 2016; byte-level as in GPT-2).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

// Caches the ids of encoded words. Not thread-safe.
class WordCache {
 public:
  // Appends the word's ids and returns true if the word is in the cache.
  bool lookup(std::string_view word, std::vector<TokenId>& ids) const;
  void store(std::string_view word, const TokenId* ids, std::size_t count);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>{}(word); }
  };
  struct Entry {
    std::uint32_t offset;
    std::uint32_t count;
  };
  // A word of at most 16 bytes and 3 ids in half a cache line. Each word has two possible slots. If both are taken, the
  // word goes to entries_; once entries_ is full, it replaces the word in one of its slots.
  struct Slot {
    std::uint64_t low = 0, high = 0;  // the word's first and last bytes, which overlap or together are the whole word
    std::uint8_t size = 0;            // bytes of the word; 0: free
    std::uint8_t count = 0;
    std::array<TokenId, 3> ids{};
  };
  static constexpr std::size_t kSlots = 1 << 16;
  [[nodiscard]] static Slot key_of(std::string_view word);
  [[nodiscard]] static std::size_t place_of(const Slot& key);

  std::vector<Slot> slots_;                                                // [kSlots], allocated by the first store
  std::unordered_map<std::string, Entry, Hash, std::equal_to<>> entries_;  // words that have no slot
  std::vector<TokenId> ids_;                                               // ids of the words in entries_
};

// Lends a cache to each call of encode, so that concurrent calls do not share one and do not wait for each other.
class WordCachePool {
 public:
  class Lease {
   public:
    explicit Lease(WordCachePool& pool);
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();
    WordCache& operator*() { return *cache_; }

   private:
    WordCachePool& pool_;
    std::unique_ptr<WordCache> cache_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> idle_;
};

// The vocabulary and the merges of a BPE tokenizer. Thread-safe after construction.
class BpeModel {
 public:
  struct Options {
    bool byte_level = true;  // merges work on bytes, and the vocabulary is written in GPT-2's byte alphabet
    bool ignore_merges = false;
    bool fuse_unknown = false;
    bool byte_fallback = false;  // characters outside the vocabulary become byte tokens <0x00> to <0xFF>
    std::string unknown_token;   // "": text outside the vocabulary throws Error
  };
  using Vocabulary = std::vector<std::pair<std::string, TokenId>>;
  using Merges = std::vector<std::pair<std::string, std::string>>;

  // Throws Error that begins with `where` if ids clash, or if a merge names a token that does not exist.
  BpeModel(Vocabulary vocabulary, const Merges& merges, Options options, std::string_view where);

  // Appends the ids of one piece of valid UTF-8. Throws Error if the vocabulary cannot represent the text.
  void encode(std::string_view piece, WordCache& cache, std::vector<TokenId>& ids) const;

  [[nodiscard]] std::optional<TokenId> token_id(std::string_view token) const;
  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }  // sorted by id
  [[nodiscard]] Merges merges() const;                                        // sorted by rank
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  struct Merge {
    std::uint64_t pair;  // left id << 32 | right id
    std::uint32_t rank;
    TokenId merged;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>{}(word); }
  };

  void build_merges(const Merges& merges, std::string_view where);
  [[nodiscard]] const Merge* find_merge(TokenId left, TokenId right) const;
  void encode_new(std::string_view piece, std::vector<TokenId>& ids) const;
  void append_symbols(std::string_view piece, std::vector<TokenId>& symbols) const;
  void append_characters(std::string_view piece, std::vector<TokenId>& symbols) const;
  [[noreturn]] void fail_outside(std::string_view piece, std::size_t at) const;
  void merge_short(std::vector<TokenId>& symbols) const;
  void merge_long(std::vector<TokenId>& symbols) const;

  Options options_;
  Vocabulary vocabulary_;
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
  // Tokens that a piece can consist of, keyed by their bytes (byte level) or their text.
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> pieces_;
  std::array<TokenId, 256> byte_ids_{};      // id of each single byte (byte level); -1: none
  std::array<TokenId, 256> fallback_ids_{};  // ids of <0x00> to <0xFF>; -1: none
  std::optional<TokenId> unknown_;
  std::vector<Merge> merges_;         // sorted by rank
  std::vector<std::uint32_t> slots_;  // open-addressing hash table over merges_; 0: free, otherwise rank + 1
  std::uint64_t slot_mask_ = 0;
};

}  // namespace hone
