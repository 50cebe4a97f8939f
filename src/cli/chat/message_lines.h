// Assembles a chat message from the lines that the user types.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace hone {

struct TypedMessage {
  std::string text;
  bool may_be_command = false;  // true for a single line without """ and without a continuation
};

// A line that ends in \ continues on the next line; one that ends in \\, as rows in LaTeX do, does not. """ begins a
// block that ends with the next """. A pasted line may contain line breaks.
class MessageLines {
 public:
  // Adds a line and returns true if it completes the message.
  [[nodiscard]] bool add(std::string_view line);
  // Returns true inside a block or after a line that continues.
  [[nodiscard]] bool has_begun() const { return is_block_ || is_continued_; }
  // Returns the message without surrounding white space and clears the lines.
  [[nodiscard]] TypedMessage take();
  void clear() { *this = {}; }

 private:
  std::string text_;
  bool is_block_ = false;
  bool is_continued_ = false;
};

}  // namespace hone
