#include "core/error.h"

namespace hone {
namespace {

std::string one_line(std::string_view where, std::string_view what, std::string_view fix) {
  std::string text;
  if (!where.empty()) text.append(where).append(": ");
  text.append(what);
  if (!fix.empty()) text.append(" (").append(fix).append(")");
  return text;
}

std::string on_one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return text;
}

}  // namespace

Error::Error(const std::string& what) : std::runtime_error(on_one_line(what)) {}

Error::Error(std::string_view where, std::string_view what, std::string_view fix)
    : std::runtime_error(on_one_line(one_line(where, what, fix))) {}

void fail_assertion(const char* condition, const char* file, int line, const std::string& message) {
  throw Defect(text_of(file, ":", line, ": ", condition, message.empty() ? "" : ": ", message));
}

}  // namespace hone
