// Splits a chat template into text and the tokens of its tags.
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
  std::string text;  // for a string: without quotes, escapes resolved
  int line = 1;

  [[nodiscard]] bool is(Kind wanted, std::string_view content) const { return kind == wanted && text == content; }
};

// Throws Error that names the template's line.
[[noreturn]] void fail_in_template(int line, std::string_view what);

// Splits a template. White space around tags is handled with transformers' settings of Jinja: trim_blocks and
// lstrip_blocks, which the signs - and + override. The last token is kEnd. Throws Error that names the line.
[[nodiscard]] std::vector<TemplateToken> lex_template(std::string_view source);

}  // namespace hone
