// A message that is typed line by line.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace hone {

struct TypedMessage {
  std::string text;
  bool may_be_command = false;  // a single line that was typed plainly
};

// A line that ends in \ goes on in the next (one that ends in \\, as rows of LaTeX do, does not); """ begins a block
// that ends with the next """. A line that was pasted may hold line breaks of its own.
class MessageLines {
 public:
  // Whether the message is whole with this line.
  [[nodiscard]] bool add(std::string_view line);
  // Whether lines have been added, and not taken.
  [[nodiscard]] bool has_begun() const { return is_block_ || is_continued_; }
  [[nodiscard]] TypedMessage take();
  void clear() { *this = {}; }

 private:
  std::string text_;
  bool is_block_ = false;
  bool is_continued_ = false;
};

}  // namespace hone
