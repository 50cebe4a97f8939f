// Exception types: Error for problems that the user can fix, Defect for bugs in hone. HONE_ASSERT checks invariants.
#pragma once

#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

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
  TextPart(const T& value) : value_(&value), append_(&append<T>) {}          // NOLINT: an argument of text_of()
  TextPart(const char* text) : value_(text), append_(&append_characters) {}  // NOLINT: likewise

  void append_to(std::string& text) const { append_(text, value_); }

 private:
  // Text and whole numbers, nearly all there is, need no stream.
  template <class T>
  static void append(std::string& text, const void* value) {
    const T& part = *static_cast<const T*>(value);
    if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      text.append(std::string_view(part));
    } else if constexpr (std::is_integral_v<T> && sizeof(T) > 1) {
      if constexpr (std::is_signed_v<T>) {
        append_number(text, static_cast<long long>(part));
      } else {
        append_number(text, static_cast<unsigned long long>(part));
      }
    } else {
      append_printed(text, value,
                     [](std::ostream& out, const void* printed) { out << *static_cast<const T*>(printed); });
    }
  }
  static void append_characters(std::string& text, const void* value);
  static void append_number(std::string& text, long long value);
  static void append_number(std::string& text, unsigned long long value);
  static void append_printed(std::string& text, const void* value, void (*print)(std::ostream& out, const void* value));

  const void* value_;
  void (*append_)(std::string& text, const void* value);
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
