#include "jinja/lexer.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/unicode.h"
#include "jinja/python_text.h"

namespace hone {
namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<TemplateToken> run() {
    while (at_ < source_.size()) lex_text();
    add(TemplateToken::Kind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] bool looking_at(std::string_view text) const { return source_.substr(at_, text.size()) == text; }
  [[nodiscard]] char peek(std::size_t offset = 0) const {
    return at_ + offset < source_.size() ? source_[at_ + offset] : '\0';
  }

  void advance(std::size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }

  void add(TemplateToken::Kind kind, std::string_view text) { tokens_.push_back({kind, std::string(text), line_}); }

  // Reads text up to the next tag, and that tag.
  void lex_text() {
    std::size_t tag = at_;
    while ((tag = source_.find('{', tag)) != std::string_view::npos) {
      const char next = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    if (tag == std::string_view::npos) {
      add(TemplateToken::Kind::kText, source_.substr(at_));
      advance(source_.size() - at_);
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    std::string_view text = source_.substr(at_, tag - at_);
    if (sign == '-') {
      text = strip_python_space_right(text);
    } else if (sign != '+' && kind != '{') {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      const bool starts_line = newline != std::string_view::npos || line_starting_;
      if (starts_line && strip_python_space(text.substr(line_begin)).empty()) text = text.substr(0, line_begin);
    }
    if (!text.empty()) add(TemplateToken::Kind::kText, text);
    advance(tag - at_ + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    line_starting_ = false;
    if (kind == '#') {
      lex_comment();
    } else if (kind == '%' && lex_raw()) {
      return;
    } else {
      lex_tag(kind == '{' ? "}}" : "%}", kind == '{');
    }
  }

  // Accepts the end of a tag, with its sign and the white space that belongs to it; returns false if it is not here.
  bool accept_end(std::string_view end, bool is_output) {
    const char sign = peek();
    const bool has_sign = sign == '-' || (sign == '+' && !is_output);
    if (source_.substr(at_ + (has_sign ? 1 : 0), 2) != end) return false;
    advance(has_sign ? 3 : 2);
    const std::size_t before = at_;
    if (has_sign && sign == '-') {
      const std::string_view rest = source_.substr(at_);
      advance(rest.size() - strip_python_space_left(rest).size());
    } else if (!has_sign && !is_output && peek() == '\n') {
      advance(1);
    }
    line_starting_ = at_ > before && source_[at_ - 1] == '\n';
    return true;
  }

  void lex_comment() {
    const int begin = line_;
    while (at_ < source_.size()) {
      if (accept_end("#}", false)) return;
      advance(1);
    }
    fail_in_template(begin, "a comment {# without its #}");
  }

  // Reads {% raw %} ... {% endraw %}; its {% was already consumed.
  bool lex_raw() {
    const std::size_t saved = at_;
    const int begin = line_;
    skip_space();
    const bool is_raw = looking_at("raw") && !is_name_part(peek(3));
    if (is_raw) {
      advance(3);
      skip_space();
      // Jinja does not trim the newline after {% raw %}.
      if (looking_at("-%}")) {
        (void)accept_end("%}", false);
      } else if (looking_at("%}")) {
        advance(2);
      } else {
        at_ = saved;
      }
    }
    if (!is_raw || at_ == saved) {
      at_ = saved;
      line_ = begin;
      return false;
    }
    const std::size_t text_begin = at_;
    while (at_ < source_.size()) {
      if (looking_at("{%")) {
        const std::size_t tag = at_;
        const int tag_line = line_;
        advance(2);
        const char sign = peek();
        if (sign == '-' || sign == '+') advance(1);
        skip_space();
        if (looking_at("endraw")) {
          advance(6);
          skip_space();
          std::string_view text = source_.substr(text_begin, tag - text_begin);
          if (sign == '-') text = strip_python_space_right(text);
          if (sign != '-' && sign != '+') {
            const std::size_t newline = text.rfind('\n');
            if (newline != std::string_view::npos && strip_python_space(text.substr(newline + 1)).empty())
              text = text.substr(0, newline + 1);
          }
          if (accept_end("%}", false)) {
            if (!text.empty()) add(TemplateToken::Kind::kText, text);
            return true;
          }
        }
        at_ = tag;
        line_ = tag_line;
      }
      advance(1);
    }
    fail_in_template(begin, "{% raw %} without its {% endraw %}");
  }

  void skip_space() {
    const std::string_view rest = source_.substr(at_);
    advance(rest.size() - strip_python_space_left(rest).size());
  }

  void lex_tag(std::string_view end, bool is_output) {
    const int begin = line_;
    add(is_output ? TemplateToken::Kind::kOutputBegin : TemplateToken::Kind::kBlockBegin, {});
    std::string open;  // stack of closing brackets that are expected
    for (;;) {
      skip_space();
      if (at_ >= source_.size()) fail_in_template(begin, text_of("a tag without its ", end));
      if (open.empty() && accept_end(end, is_output)) break;
      lex_token(open);
    }
    add(is_output ? TemplateToken::Kind::kOutputEnd : TemplateToken::Kind::kBlockEnd, {});
  }

  void lex_token(std::string& open) {
    const char c = peek();
    if (is_name_start(c)) {
      std::size_t size = 1;
      while (is_name_part(peek(size))) ++size;
      add(TemplateToken::Kind::kName, source_.substr(at_, size));
      advance(size);
    } else if (is_digit(c)) {
      lex_number();
    } else if (c == '"' || c == '\'') {
      lex_string();
    } else {
      lex_operator(open);
    }
  }

  void lex_number() {
    std::size_t size = 0;
    bool is_float = false;
    const auto digits = [&] {
      while (is_digit(peek(size)) || (peek(size) == '_' && is_digit(peek(size + 1)))) ++size;
    };
    digits();
    if (peek(size) == '.' && is_digit(peek(size + 1))) {
      is_float = true;
      ++size;
      digits();
    }
    if (peek(size) == 'e' || peek(size) == 'E') {
      const std::size_t sign = peek(size + 1) == '+' || peek(size + 1) == '-' ? 1 : 0;
      if (is_digit(peek(size + 1 + sign))) {
        is_float = true;
        size += 1 + sign;
        digits();
      }
    }
    std::string text(source_.substr(at_, size));
    std::erase(text, '_');
    add(is_float ? TemplateToken::Kind::kFloat : TemplateToken::Kind::kInteger, text);
    advance(size);
  }

  void lex_string() {
    const char quote = peek();
    const int begin = line_;
    std::string text;
    std::size_t i = at_ + 1;
    for (;; ++i) {
      if (i >= source_.size()) fail_in_template(begin, "a string without its closing quote");
      if (source_[i] == quote) break;
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = unescape(i + 1, text);
      } else {
        text.push_back(source_[i]);
      }
    }
    add(TemplateToken::Kind::kString, text);
    advance(i + 1 - at_);
  }

  // Reads the escape whose letter is at `i` and returns the position of its last byte. Same rules as Python's string
  // literals.
  std::size_t unescape(std::size_t i, std::string& text) const {
    constexpr std::string_view kLetters = "ntrabfv\\'\"", kMeanings = "\n\t\r\a\b\f\v\\'\"";
    const char letter = source_[i];
    if (const std::size_t found = kLetters.find(letter); found != std::string_view::npos) {
      text.push_back(kMeanings[found]);
      return i;
    }
    if (letter == '\n') return i;
    const bool octal = letter >= '0' && letter <= '7';
    const std::size_t most = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : octal ? 3 : 0;
    if (most == 0) {
      if (letter == 'N') fail_in_template(line_, "the escape \\N in a string is not supported");
      text.push_back('\\');
      text.push_back(letter);
      return i;
    }
    char32_t value = 0;
    std::size_t at = octal ? i : i + 1;
    const std::size_t begin = at;
    for (; at < source_.size() && at - begin < most; ++at) {
      const char c = source_[at];
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : 99;
      if (digit >= (octal ? 8 : 16)) break;
      value = value * (octal ? 8 : 16) + static_cast<char32_t>(digit);
    }
    const bool whole = octal || at - begin == most;
    if (!whole || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      fail_in_template(line_, text_of("invalid escape \\", letter, " in a string"));
    }
    append_utf8(text, value);
    return at - 1;
  }

  void lex_operator(std::string& open) {
    constexpr std::array<std::string_view, 6> kLong{"**", "//", "==", "!=", "<=", ">="};
    constexpr std::string_view kShort = "+-*/%~<>=.:|,;()[]{}";
    for (const std::string_view text : kLong) {
      if (looking_at(text)) {
        add(TemplateToken::Kind::kOperator, text);
        advance(2);
        return;
      }
    }
    const char c = peek();
    if (kShort.find(c) == std::string_view::npos) fail_in_template(line_, text_of("an unexpected character '", c, "'"));
    if (c == '(' || c == '[' || c == '{') {
      if (open.size() > 500) fail_in_template(line_, "brackets nested too deep");
      open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail_in_template(line_, text_of("an unexpected '", c, "'"));
      open.pop_back();
    }
    add(TemplateToken::Kind::kOperator, source_.substr(at_, 1));
    advance(1);
  }

  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // only a newline is between the last tag and here
  std::vector<TemplateToken> tokens_;
};

// Converts newlines to \n and drops one at the end.
std::string prepared(std::string_view source) {
  const std::string valid = replace_invalid_utf8(source);
  std::string text;
  text.reserve(valid.size());
  for (std::size_t i = 0; i < valid.size(); ++i) {
    if (valid[i] == '\r') {
      text.push_back('\n');
      if (i + 1 < valid.size() && valid[i + 1] == '\n') ++i;
    } else {
      text.push_back(valid[i]);
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

void fail_in_template(int line, std::string_view what) { throw Error(text_of("chat template, line ", line), what); }

std::vector<TemplateToken> lex_template(std::string_view source) {
  const std::string text = prepared(source);
  return Lexer(text).run();
}

}  // namespace hone
