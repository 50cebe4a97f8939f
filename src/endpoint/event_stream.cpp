#include "endpoint/event_stream.h"

#include <utility>

#include "core/error.h"

namespace hone {

std::vector<std::string> EventStream::add(std::string_view piece) {
  std::vector<std::string> events;
  for (const char letter : piece) {
    if (std::exchange(after_return_, letter == '\r') && letter == '\n') continue;
    if (letter == '\n' || letter == '\r') {
      end_line(events);
      continue;
    }
    if (line_.size() + data_.size() >= kMaxEventBytes) throw Error("", "an event of the answer is too long");
    line_ += letter;
  }
  return events;
}

void EventStream::end_line(std::vector<std::string>& events) {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    if (std::exchange(has_data_, false)) events.push_back(std::exchange(data_, {}));
    return;
  }
  constexpr std::string_view kField = "data";
  const std::string_view text = line;
  const std::size_t colon = std::min(text.find(':'), text.size());
  if (text.substr(0, colon) != kField) return;
  std::string_view value = text.substr(std::min(colon + 1, text.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace hone
