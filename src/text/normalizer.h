// Normalizes a text: the first step of a tokenizer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/pattern.h"

namespace hone {

class Normalizer {
 public:
  Normalizer() = default;
  // Reads the "normalizer" of tokenizer.json: null, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, Prepend,
  // Replace or a Sequence of them. Throws Error for any other.
  Normalizer(const Json& json, std::string_view where);
  [[nodiscard]] bool is_identity() const { return steps_.empty(); }
  [[nodiscard]] std::string apply(std::string_view text) const;  // `text`: valid UTF-8

 private:
  enum class Kind { kNfc, kNfd, kNfkc, kNfkd, kLowercase, kStrip, kStripAccents, kNmt, kPrepend, kReplace };
  struct Step {
    Kind kind;
    std::string content = {};                          // kPrepend: the prefix; kReplace: the replacement
    std::shared_ptr<const Pattern> pattern = nullptr;  // kReplace
    bool left = true, right = true;                    // kStrip
  };
  void add(const Json& json, std::string_view where, int depth);
  static std::string apply(const Step& step, const std::string& text);
  std::vector<Step> steps_;
};

// Reads the "pattern" of a Replace or a Split: {"String": ...} or {"Regex": ...}. `part` names it in errors.
[[nodiscard]] std::shared_ptr<const Pattern> read_pattern(const Json& json, std::string_view part,
                                                          std::string_view where);
// Replaces every match of the pattern by `content`.
[[nodiscard]] std::string replace_matches(const Pattern& pattern, std::string_view text, std::string_view content);

}  // namespace hone
