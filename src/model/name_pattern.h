// Regular expressions over names of modules ("model.layers.0.self_attn.q_proj"), in the syntax of Python's re: what
// PEFT takes as target_modules and alpha_pattern. PCRE2 matches them, within a limit of steps.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace hone {

class NamePattern {
 public:
  // Throws Error, beginning with `where`, for what is none, and for what Python and PCRE2 do not mean alike:
  // conditions, verbose mode, classes in classes, escapes that one of them does not know.
  NamePattern(std::string_view source, std::string_view where);

  // Whether the whole name fits: re.fullmatch. Throws Error where that takes too many steps.
  [[nodiscard]] bool fits(std::string_view name) const;

 private:
  struct Code;
  std::string source_;
  std::string where_;
  std::shared_ptr<const Code> code_;
};

}  // namespace hone
