#include "model/name_pattern.h"

#include "core/error.h"

namespace hone {
namespace {

constexpr std::size_t kLongestSource = 10'000;

[[noreturn]] void refuse(std::string_view where, std::string_view source, std::string_view what, std::size_t at) {
  throw Error(std::string(where),
              text_of("'", source, "' is no regular expression that hone reads: ", what, " at character ", at + 1));
}

bool is_one_of(char c, std::string_view characters) { return characters.find(c) != std::string_view::npos; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Translates a Python expression to an equivalent PCRE2 expression. Throws Error for constructs without an equivalent.
class Translator {
 public:
  Translator(std::string_view source, std::string_view where) : source_(source), where_(where) {}

  std::string translate() {
    while (at_ < source_.size()) {
      const char c = source_[at_];
      const bool is_repetition = is_one_of(c, "*+?") || (c == '{' && count_at(at_) > 0);
      if (is_repetition) {
        take_repetition();
        continue;
      }
      may_repeat_ = true;
      if (c == '\\') {
        take_escape("AbBdDsSwWZnrtfva");
      } else if (c == '[') {
        take_class();
      } else if (c == '(') {
        take_group();
      } else {
        take(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const { refuse(where_, source_, what, at_); }
  [[nodiscard]] bool sees(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  void take(std::size_t count) {
    out_ += source_.substr(at_, count);
    at_ += count;
  }

  // Length of a repetition {m}, {m,}, {,n} or {m,n} at `from`; 0 for literal braces.
  [[nodiscard]] std::size_t count_at(std::size_t from) const {
    const std::size_t end = source_.find('}', from);
    if (end == std::string_view::npos) return 0;
    const std::string_view inside = source_.substr(from + 1, end - from - 1);
    if (inside.empty() || inside == "," || inside.find_first_not_of("0123456789,") != std::string_view::npos ||
        inside.find(',') != inside.rfind(',')) {
      return 0;
    }
    return end + 1 - from;
  }

  void take_repetition() {
    if (!may_repeat_) fail("nothing to repeat");
    may_repeat_ = false;
    if (sees("{,")) {
      out_ += "{0";
      at_ += 1;
      take(source_.find('}', at_) + 1 - at_);
    } else {
      take(source_[at_] == '{' ? count_at(at_) : 1);
    }
    if (sees("?") || sees("+")) take(1);
  }

  // Copies an escape sequence. `letters` are the letters that may be escaped; digits are back references.
  void take_escape(std::string_view letters) {
    if (at_ + 1 >= source_.size()) fail("a \\ without what it escapes");
    const char escaped = source_[at_ + 1];
    if (is_letter(escaped) && !is_one_of(escaped, letters)) fail("an unknown escape");
    if (escaped == 'Z') {
      out_ += "\\z";
      at_ += 2;
    } else if (escaped == 'v') {
      out_ += "\\x0b";
      at_ += 2;
    } else {
      take(2);
    }
  }

  void take_class() {
    take(1);
    if (sees("^")) take(1);
    if (sees("]")) take(1);
    while (!sees("]")) {
      if (at_ >= source_.size()) fail("a class without its ]");
      if (sees("[")) fail("a [ in a class");
      if (sees("\\")) {
        take_escape("bdDsSwWnrtfva");
      } else {
        take(1);
      }
    }
    take(1);
  }

  void take_group() {
    if (sees("(*")) fail("nothing to repeat");
    if (!sees("(?")) return take_open(1);
    if (sees("(?#")) {
      const std::size_t end = source_.find(')', at_);
      if (end == std::string_view::npos) fail("a comment without its )");
      at_ = end + 1;
      return;
    }
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?P<", "(?>"}) {
      if (sees(kind)) return take_open(kind.size());
    }
    if (sees("(?P=")) return take(4);
    const std::size_t end = source_.find_first_not_of("ims", at_ + 2);
    if (end == at_ + 2 || end == std::string_view::npos || !is_one_of(source_[end], ":)")) fail("an unknown group");
    take_open(end + 1 - at_);
  }

  // Copies the opening of a group, which cannot be followed by a repetition.
  void take_open(std::size_t count) {
    take(count);
    may_repeat_ = false;
  }

  std::string_view source_;
  std::string_view where_;
  std::size_t at_ = 0;
  bool may_repeat_ = false;
  std::string out_;
};

}  // namespace

NamePattern::NamePattern(std::string_view source, std::string_view where) : source_(source), where_(where) {
  if (source.size() > kLongestSource) {
    throw Error(where_, text_of("a regular expression of ", source.size(), " bytes, more than ", kLongestSource));
  }
  try {
    regex_.emplace(Translator(source_, where_).translate());
  } catch (const RegexError& error) {
    refuse(where_, source_, error.what(), error.at() == 0 ? 0 : error.at() - 1);
  }
}

bool NamePattern::fits(std::string_view name) const {
  HONE_ASSERT(regex_.has_value(), "the pattern of ", where_, " has no expression");
  try {
    return regex_->fits(name);
  } catch (const RegexError& error) {
    throw Error(where_, text_of("'", source_, "' on ", name, ": ", error.what()), "a simpler regular expression");
  }
}

}  // namespace hone
