// Cuts a chat template into text and the tokens of its tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct TemplateToken {
  enum class Kind {
    kText,
    kOutputBegin,
    kOutputEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;  // of a string: without quotes, escapes resolved
  int line = 1;

  [[nodiscard]] bool is(Kind wanted, std::string_view content) const { return kind == wanted && text == content; }
};

[[noreturn]] void fail_in_template(int line, std::string_view what);

// White space around tags is treated as transformers sets Jinja up: trim_blocks and lstrip_blocks, with the signs
// - and + overriding. Ends with a kEnd token. Throws Error with the line.
[[nodiscard]] std::vector<TemplateToken> lex_template(std::string_view source);

}  // namespace hone
