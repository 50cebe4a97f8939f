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

void TextPart::append_characters(std::string& text, const void* value) { text.append(static_cast<const char*>(value)); }
void TextPart::append_number(std::string& text, long long value) { text.append(std::to_string(value)); }
void TextPart::append_number(std::string& text, unsigned long long value) { text.append(std::to_string(value)); }
void TextPart::append_printed(std::string& text, const void* value,
                              void (*print)(std::ostream& out, const void* value)) {
  std::ostringstream out;
  print(out, value);
  text.append(out.view());
}

std::string text_of_parts(std::initializer_list<TextPart> parts) {
  std::string text;
  for (const TextPart& part : parts) part.append_to(text);
  return text;
}

void fail_assertion(const char* condition, const char* file, int line, const std::string& message) {
  throw Defect(text_of(file, ":", line, ": ", condition, message.empty() ? "" : ": ", message));
}

}  // namespace hone
