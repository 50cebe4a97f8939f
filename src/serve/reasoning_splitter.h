// Splits an answer, while it is generated, into the reasoning inside <think> ... </think> and the content after it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

class ReasoningSplitter {
 public:
  struct Part {
    std::string reasoning;
    std::string content;
  };

  // `opened`: the prompt ends inside of the reasoning, because the chat template writes the opening tag. Otherwise an
  // answer has reasoning only if its first text, after white space, is the opening tag.
  explicit ReasoningSplitter(bool opened) : state_(opened ? State::kReasoning : State::kStart) {}

  // Takes the next text and returns what is certain by now. An incomplete tag is held back. The parts of all calls,
  // concatenated, do not depend on how the text was divided. They have every byte of it except the two tags and white
  // space before the opening tag.
  [[nodiscard]] Part add(std::string_view text);
  // Returns what is held back. Call this once, after the last text.
  [[nodiscard]] Part finish();

 private:
  enum class State : std::uint8_t { kStart, kReasoning, kContent };
  State state_;
  std::string held_;  // text that add() has not returned
};

}  // namespace hone
