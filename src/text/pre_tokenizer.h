// The steps before the merges: normalisers, and pre-tokenizers that cut text into the pieces merges stay within.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/pattern.h"

namespace hone {

// GPT-2's pattern, which the pre-tokenizer ByteLevel applies itself, and Qwen2's.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

class Normalizer {
 public:
  Normalizer() = default;
  // The "normalizer" of tokenizer.json: null, NFC, NFD or a Sequence of them. Throws Error.
  Normalizer(const Json& json, std::string_view where);
  [[nodiscard]] bool is_identity() const { return steps_.empty(); }
  [[nodiscard]] std::string apply(std::string_view text) const;  // of valid UTF-8

 private:
  enum class Step { kNfc, kNfd };
  void add(const Json& json, std::string_view where, int depth);
  std::vector<Step> steps_;
};

// What becomes of the pieces that a pattern matches.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Pieces of text. Those that a step changed are kept in `changed`.
struct Pieces {
  std::vector<std::string_view> views;
  std::deque<std::string> changed;
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  // The "pre_tokenizer" of tokenizer.json: null, ByteLevel, Split, Digits or a Sequence of them. Throws Error.
  PreTokenizer(const Json& json, std::string_view where);
  // Merges work on bytes (ByteLevel is the last step), not on characters.
  [[nodiscard]] bool byte_level() const { return byte_level_; }
  // Cuts valid UTF-8. The views point into `text` or into pieces.changed.
  void split(std::string_view text, Pieces& pieces) const;

 private:
  struct Step {
    enum class Kind { kPattern, kDigits, kPrefixSpace } kind = Kind::kPattern;
    std::shared_ptr<const Pattern> pattern;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
    bool individual_digits = false;
  };
  void add(const Json& json, std::string_view where, int depth);
  void add_split(const Json& json, std::string_view where);
  void add_byte_level(const Json& json, std::string_view where);
  static void apply(const Step& step, std::string_view piece, Pieces& pieces);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace hone
