#include "cli/chat/message_lines.h"

#include "core/strings.h"

namespace hone {
namespace {

constexpr std::string_view kBlockMark = "\"\"\"";

}  // namespace

bool MessageLines::add(std::string_view line) {
  std::string_view trimmed = trim(line);
  if (!has_begun() && trimmed.starts_with(kBlockMark)) {
    is_block_ = true;
    line = trimmed = trim(trimmed.substr(kBlockMark.size()));
    if (line.empty()) return false;
  }
  if (is_block_) {
    const bool ends = trimmed.ends_with(kBlockMark);
    if (ends) line = line.substr(0, line.rfind(kBlockMark));
    text_ += line;
    if (!ends) text_ += '\n';
    return ends;
  }
  const bool continues = line.ends_with('\\') && !line.ends_with("\\\\");
  if (continues) {
    line.remove_suffix(1);
    is_continued_ = true;
  }
  text_ += line;
  if (continues) text_ += '\n';
  return !continues;
}

TypedMessage MessageLines::take() {
  TypedMessage message{.text = std::string(trim(text_)), .may_be_command = false};
  message.may_be_command = !has_begun() && message.text.find('\n') == std::string::npos;
  clear();
  return message;
}

}  // namespace hone
