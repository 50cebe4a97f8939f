#include "program/input_layout.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "core/error.h"

namespace hone {

void InputLayout::add(const Program& program) {
  for (const Value& value : program.values()) {
    if (value.role != Role::kInput) continue;
    auto found = std::ranges::find(inputs_, value.name, &Input::name);
    if (found == inputs_.end()) found = inputs_.insert(found, {.name = value.name, .dtype = value.type.dtype});
    HONE_ASSERT(found->dtype == value.type.dtype, "input ", value.name, " is ", to_text(value.type), " and ",
                name_of(found->dtype));
    found->bytes = std::max(found->bytes, align_up(value.type.bytes()));
  }
  const std::size_t counts = std::max<std::size_t>(program.counts().size(), 1);
  counts_bytes_ = std::max(counts_bytes_, align_up(counts * sizeof(std::int64_t)));
  std::ranges::sort(inputs_, {}, [](const Input& input) { return std::tie(input.bytes, input.name); });
  bytes_ = counts_bytes_;
  for (Input& input : inputs_) {
    input.offset = bytes_;
    bytes_ += input.bytes;
  }
}

std::size_t InputLayout::offset_of(std::string_view input) const {
  const auto found = std::ranges::find(inputs_, input, &Input::name);
  HONE_ASSERT(found != inputs_.end(), "there is no input ", input);
  return found->offset;
}

}  // namespace hone
