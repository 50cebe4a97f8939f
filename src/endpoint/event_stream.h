// Reads server-sent events, as servers with OpenAI's API stream answers.
// Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// Takes a stream in pieces of any size and returns the data of its events. Lines end with \n, \r\n or \r. Names,
// identifiers and comments are ignored.
class EventStream {
 public:
  // Returns the data of the events that are complete by now. Throws Error if one is longer than kMaxEventBytes.
  [[nodiscard]] std::vector<std::string> add(std::string_view piece);

 private:
  void end_line(std::vector<std::string>& events);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // the last character was \r, so that a \n belongs to it
};

inline constexpr std::size_t kMaxEventBytes = std::size_t{16} << 20;

}  // namespace hone
