// Exception types: Error for problems that the user can fix, Defect for bugs in hone. HONE_ASSERT checks invariants.
#pragma once

#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hone {

// Problem that the user can fix, with a message of one line: where, what, and how to fix it. The parts may quote
// untrusted text, so printable_line() escapes control characters and line breaks. The command line prints the message
// and exits with code 1; the server returns it in the error object of its response.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what);
  // Formats "WHERE: WHAT (FIX)"; empty parts are omitted.
  Error(std::string_view where, std::string_view what, std::string_view fix = {});
};

// Bug in hone, such as a violated invariant; the command line exits with code 2.
class Defect : public std::logic_error {
 public:
  explicit Defect(const std::string& what) : std::logic_error(what) {}
};

// A value that is to be printed, and how. It refers to the value.
class TextPart {
 public:
  template <class T>
  TextPart(const T& value) : value_(&value), print_(&print<T>) {}          // NOLINT: an argument of text_of()
  TextPart(const char* text) : value_(text), print_(&print_characters) {}  // NOLINT: likewise

  void print_to(std::ostream& out) const { print_(out, value_); }

 private:
  template <class T>
  static void print(std::ostream& out, const void* value) {
    out << *static_cast<const T*>(value);
  }
  static void print_characters(std::ostream& out, const void* text);

  const void* value_;
  void (*print_)(std::ostream& out, const void* value);
};

// Concatenates the arguments as std::ostream prints them. Not a template of them: it has over a thousand callers.
[[nodiscard]] std::string text_of_parts(std::initializer_list<TextPart> parts);
template <class... Parts>
[[nodiscard]] std::string text_of(const Parts&... parts) {
  return text_of_parts({TextPart(parts)...});
}

[[noreturn]] void fail_assertion(const char* condition, const char* file, int line, const std::string& message);

}  // namespace hone

// Throws Defect if the condition is false, in every build type. The remaining arguments are concatenated and appended
// to the message: give the values that violate the invariant.
#define HONE_ASSERT(condition, ...)                                                                         \
  do {                                                                                                      \
    if (!(condition)) ::hone::fail_assertion(#condition, __FILE__, __LINE__, ::hone::text_of(__VA_ARGS__)); \
  } while (false)
