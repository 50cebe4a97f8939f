// Regular expressions over module names ("model.layers.0.self_attn.q_proj") in the syntax of Python's re, which PEFT
// uses for target_modules and alpha_pattern. Patterns are translated for PCRE2, which matches them within limits on
// steps and memory.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/regex.h"

namespace hone {

class NamePattern {
 public:
  // Compiles `source`. Throws Error, located at `where`, if it is not a valid expression or uses a construct that
  // Python and PCRE2 interpret differently: conditionals, verbose mode, nested character classes, escapes that only one
  // of them defines.
  NamePattern(std::string_view source, std::string_view where);

  // Returns true if the pattern matches the whole name, as re.fullmatch does. Throws Error if matching exceeds the
  // limit on steps.
  [[nodiscard]] bool fits(std::string_view name) const;

 private:
  std::string source_;
  std::string where_;
  std::optional<Regex> regex_;  // set by the constructor
};

}  // namespace hone
