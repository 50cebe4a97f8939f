// The places of inputs in an InputBuffer, of one program or of several that share the buffer.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace hone {

// The counts that the host sets come first, then the inputs in ascending order of their sizes: a run sets the counts
// and most of the small inputs, so that what changes lies together (InputBuffer::upload()).
class InputLayout {
 public:
  InputLayout() = default;
  explicit InputLayout(const Program& program) { add(program); }

  // Makes room for the inputs and counts of a program. Inputs of one name have one place in all programs, as large as
  // the largest of them. Moves the places of other inputs. Throws Defect if two programs have an input of one name with
  // two types of elements.
  void add(const Program& program);

  // Returns the place in bytes of an input, which must be one of a program that was added.
  [[nodiscard]] std::size_t offset_of(std::string_view input) const;
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  static constexpr std::size_t kCountsOffset = 0;

 private:
  struct Input {
    std::string name;
    DType dtype = DType::kF32;
    std::size_t bytes = 0;  // aligned
    std::size_t offset = 0;
  };

  std::vector<Input> inputs_;  // ascending offsets
  std::size_t counts_bytes_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace hone
