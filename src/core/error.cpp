#include "core/error.h"

#include <sstream>

#include "core/strings.h"

namespace hone {
namespace {

std::string one_line(std::string_view where, std::string_view what, std::string_view fix) {
  std::string text;
  if (!where.empty()) text.append(where).append(": ");
  text.append(what);
  if (!fix.empty()) text.append(" (").append(fix).append(")");
  return text;
}

}  // namespace

Error::Error(const std::string& what) : std::runtime_error(printable_line(what)) {}

Error::Error(std::string_view where, std::string_view what, std::string_view fix)
    : std::runtime_error(printable_line(one_line(where, what, fix))) {}

void TextPart::print_characters(std::ostream& out, const void* text) { out << static_cast<const char*>(text); }

std::string text_of_parts(std::initializer_list<TextPart> parts) {
  std::ostringstream out;
  for (const TextPart& part : parts) part.print_to(out);
  return out.str();
}

void fail_assertion(const char* condition, const char* file, int line, const std::string& message) {
  throw Defect(text_of(file, ":", line, ": ", condition, message.empty() ? "" : ": ", message));
}

}  // namespace hone
