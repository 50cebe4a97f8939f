// Pre-tokenizers split a text into pieces; merges never cross the boundaries of a piece.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/pattern.h"
#include "text/word_scanner.h"

namespace hone {

// GPT-2's pattern, which the ByteLevel pre-tokenizer applies by default, and Qwen2's pattern.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Treatment of the parts that a pattern matches.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Pieces of a text. Pieces that a step rewrote are stored in `changed`.
struct Pieces {
  std::vector<std::string_view> views;
  std::deque<std::string> changed;
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  // Reads the "pre_tokenizer" of tokenizer.json: null, ByteLevel, Split, Digits, Punctuation, Metaspace, Whitespace,
  // WhitespaceSplit, CharDelimiterSplit, BertPreTokenizer, FixedLength or a Sequence of them. Throws Error for any
  // other.
  PreTokenizer(const Json& json, std::string_view where);
  // Returns true if merges work on bytes (ByteLevel is the last step) instead of characters.
  [[nodiscard]] bool byte_level() const { return byte_level_; }
  // Splits valid UTF-8. The views point into `text` or into pieces.changed. `at_start`: nothing precedes this text.
  void split(std::string_view text, Pieces& pieces, bool at_start) const;

 private:
  enum class Kind { kPattern, kCharacters, kPrefixSpace, kMetaspace, kFixedLength };
  enum class Prepend { kNever, kFirst, kAlways };
  struct Step {
    Kind kind = Kind::kPattern;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    std::shared_ptr<const Pattern> pattern = nullptr;  // kPattern
    bool invert = false;                               // kPattern
    bool is_regex = true;                              // kPattern: a regular expression, otherwise a literal
    bool (*matches)(char32_t) = nullptr;               // kCharacters: the characters to split at
    std::string replacement = {};                      // kMetaspace: the character that replaces a space
    Prepend prepend = Prepend::kNever;                 // kMetaspace
    bool split = true;                                 // kMetaspace
    std::size_t length = 0;                            // kFixedLength: characters
  };
  void add(const Json& json, std::string_view where, int depth);
  bool add_cutter(const std::string& type, const Json& json, std::string_view where);
  void add_split(const Json& json, std::string_view where);
  void add_byte_level(const Json& json, std::string_view where);
  void add_metaspace(const Json& json, std::string_view where);
  static void apply(const Step& step, std::string_view piece, bool is_first, Pieces& pieces);
  static void apply_metaspace(const Step& step, std::string_view piece, bool is_first, Pieces& pieces);

  std::vector<Step> steps_;
  std::optional<WordScanner> scanner_;  // replaces all steps if it supports their patterns
  bool byte_level_ = false;
};

}  // namespace hone
