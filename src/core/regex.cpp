#include "core/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <new>
#include <string>

namespace hone {
namespace {

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 200> message{};
  pcre2_get_error_message(error, message.data(), message.size());
  return reinterpret_cast<const char*>(message.data());
}

PCRE2_SPTR bytes_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
}

// Searches one text for matches of one expression.
class Search {
 public:
  Search(const pcre2_code* code, RegexLimits limits, std::string_view text)
      : code_(code),
        text_(text),
        context_(pcre2_match_context_create(nullptr), pcre2_match_context_free),
        match_(pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free) {
    if (!context_ || !match_) throw std::bad_alloc();
    pcre2_set_match_limit(context_.get(), limits.steps);
    pcre2_set_heap_limit(context_.get(), limits.kibibytes);
  }

  // Searches for the next match from `at`, which must be at the start of a character. Returns false if there is none.
  bool find(std::size_t at, std::uint32_t options) {
    const int result =
        pcre2_match(code_, bytes_of(text_), text_.size(), at, options | checked_, match_.get(), context_.get());
    if (result < 0 && result != PCRE2_ERROR_NOMATCH) throw RegexError(message_of(result));
    // A check of the whole text before each match would take time proportional to the square of its length.
    checked_ = PCRE2_NO_UTF_CHECK;
    return result >= 0;
  }
  [[nodiscard]] std::size_t begin() const { return pcre2_get_ovector_pointer(match_.get())[0]; }
  [[nodiscard]] std::size_t end() const { return pcre2_get_ovector_pointer(match_.get())[1]; }
  [[nodiscard]] std::string_view group(std::size_t number) const {
    if (number >= pcre2_get_ovector_count(match_.get())) return {};
    const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(match_.get()) + 2 * number;
    return bounds[0] == PCRE2_UNSET ? std::string_view() : text_.substr(bounds[0], bounds[1] - bounds[0]);
  }

 private:
  const pcre2_code* code_;
  std::string_view text_;
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context_;
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match_;
  std::uint32_t checked_ = 0;
};

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }

  pcre2_code* code;
};

Regex::Regex(std::string_view expression, RegexLimits limits) : limits_(limits) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* const code = pcre2_compile(bytes_of(expression), expression.size(),
                                         PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, context.get());
  if (code == nullptr) throw RegexError(message_of(error), at);
  code_ = std::make_shared<const Code>(code);
}

bool Regex::fits(std::string_view text) const {
  return Search(code_->code, limits_, text).find(0, PCRE2_ANCHORED | PCRE2_ENDANCHORED);
}

void Regex::for_each_match(std::string_view text, const std::function<void(const RegexMatch&)>& visit) const {
  Search search(code_->code, limits_, text);
  std::uint32_t options = 0;
  for (std::size_t at = 0; search.find(at, options); at = search.end()) {
    visit({.whole = search.group(0), .group = search.group(1)});
    // An empty match may be followed by another one at its place, but not by an empty one.
    options = search.begin() == search.end() ? PCRE2_NOTEMPTY_ATSTART : 0;
  }
}

}  // namespace hone
