// Errors that a user can mend. Invariants of hone itself are checked with HONE_ASSERT.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hone {

// What went wrong, where, and what to do about it, on one line: line breaks and control characters in the parts, which
// may come from a file, are replaced. The command line prints it and exits with 1; the server
// turns it into its error object.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what);
  // "WHERE: WHAT (FIX)"; an empty part is left out.
  Error(std::string_view where, std::string_view what, std::string_view fix = {});
};

// A defect in hone: exit code 2.
class Defect : public std::logic_error {
 public:
  explicit Defect(const std::string& what) : std::logic_error(what) {}
};

// Joins its arguments as an output stream prints them.
template <class... Parts>
[[nodiscard]] std::string text_of(const Parts&... parts) {
  std::ostringstream out;
  ((void)(out << parts), ...);
  return out.str();
}

[[noreturn]] void fail_assertion(const char* condition, const char* file, int line, const std::string& message);

}  // namespace hone

// States an invariant; the remaining arguments, printed with the failure, are the values that were seen.
#define HONE_ASSERT(condition, ...)                                                                         \
  do {                                                                                                      \
    if (!(condition)) ::hone::fail_assertion(#condition, __FILE__, __LINE__, ::hone::text_of(__VA_ARGS__)); \
  } while (false)
