#include "checkpoint/tensor_pieces.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "checkpoint/safetensors_header.h"
#include "core/error.h"

namespace hone {
namespace {

constexpr std::string_view kOf = " of ";

// Parses a list of numbers, "128,0"; returns nothing if the text is not such a list.
std::optional<std::vector<std::int64_t>> numbers_of(std::string_view text) {
  std::vector<std::int64_t> numbers;
  while (!text.empty()) {
    const std::string_view number = text.substr(0, text.find(','));
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc() || end != number.data() + number.size() || value < 0) return std::nullopt;
    numbers.push_back(value);
    if (number.size() == text.size()) return numbers;
    text.remove_prefix(number.size() + 1);
    if (text.empty()) return std::nullopt;
  }
  return numbers;
}

// Parses "OFFSET of SHAPE"; returns nothing if the text is malformed.
std::optional<TensorPlace> place_of(std::string_view text) {
  const std::size_t of = text.find(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  auto offset = numbers_of(text.substr(0, of));
  auto whole = numbers_of(text.substr(of + kOf.size()));
  if (!offset || !whole) return std::nullopt;
  return TensorPlace{std::move(*offset), std::move(*whole)};
}

std::string joined(std::span<const std::int64_t> numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += text_of(text.empty() ? "" : ",", number);
  return text;
}

// Returns true if a piece of this shape fits at that position and the number of elements of the whole does not
// overflow.
bool fits(const TensorPlace& place, std::span<const std::int64_t> shape) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 60;
  if (place.offset.size() != shape.size() || place.whole.size() != shape.size()) return false;
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (place.offset[d] > place.whole[d] || shape[d] > place.whole[d] - place.offset[d]) return false;
    if (__builtin_mul_overflow(elements, place.whole[d], &elements) || elements > kMostElements) return false;
  }
  return true;
}

bool overlap(const StoredTensor& a, std::span<const std::int64_t> a_offset, const StoredTensor& b,
             std::span<const std::int64_t> b_offset) {
  if (a.element_count() == 0 || b.element_count() == 0) return false;
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    if (a_offset[d] + a.shape[d] <= b_offset[d] || b_offset[d] + b.shape[d] <= a_offset[d]) return false;
  }
  return true;
}

}  // namespace

std::string piece_name(std::string_view name, const TensorPlace& place) {
  return text_of(name, "@", joined(place.offset));
}
std::string place_text(const TensorPlace& place) {
  return joined(place.offset) + std::string(kOf) + joined(place.whole);
}

void PiecedTensor::Box::measure() {
  stride.assign(whole.size(), 1);
  for (std::size_t d = whole.size(); d-- > 1;) stride[d - 1] = stride[d] * whole[d];
  // A run spans the trailing dimensions up to and including the first, from the back, that the piece does not fill.
  outer = whole.size();
  while (outer > 0) {
    --outer;
    run *= stored->shape[outer];
    if (stored->shape[outer] != whole[outer]) break;
  }
  for (std::size_t d = 0; d < outer; ++d) runs *= stored->shape[d];
}

std::int64_t PiecedTensor::Box::start(std::int64_t index) const {
  std::int64_t element = 0;
  for (std::size_t d = offset.size(); d-- > 0;) {
    std::int64_t at = offset[d];
    if (d < outer) {
      at += index % stored->shape[d];
      index /= stored->shape[d];
    }
    element += at * stride[d];
  }
  return element;
}

std::int64_t PiecedTensor::Box::before(std::int64_t element) const {
  // Binary search over the runs, whose starts ascend. Invariant: the runs below `low` start before the element.
  std::int64_t low = 0;
  std::int64_t high = runs;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (start(middle) < element) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == 0 ? 0 : (low - 1) * run + std::min(run, element - start(low - 1));
}

void PiecedTensor::read(std::int64_t first, DType wanted, std::span<std::byte> out) const {
  const std::size_t size = size_of(wanted);
  const std::int64_t end = first + static_cast<std::int64_t>(out.size() / size);
  // Copy the parts of all runs that are within the requested range.
  for (const Box& box : boxes_) {
    const std::int64_t last = box.before(end);
    for (std::int64_t at = box.before(first); at < last;) {
      const std::int64_t in_run = at % box.run;
      const std::int64_t count = std::min(box.run - in_run, last - at);
      const std::int64_t to = box.start(at / box.run) + in_run - first;
      read_as(*box.stored, wanted, at,
              out.subspan(static_cast<std::size_t>(to) * size, static_cast<std::size_t>(count) * size));
      at += count;
    }
  }
}

PiecedTensors::PiecedTensors(std::span<const SafetensorsFile> files) {
  HONE_ASSERT(!files.empty(), "no file");
  where_ = files.front().name();
  if (files.size() > 1) where_ = std::filesystem::path(where_).parent_path().string();
  for (const SafetensorsFile& file : files) {
    for (const StoredTensor& stored : file.tensors()) add(stored, file);
  }
}

void PiecedTensors::add(const StoredTensor& stored, const SafetensorsFile& file) {
  PiecedTensor::Box box{.stored = &stored, .offset = {}, .whole = stored.shape, .stride = {}};
  box.offset.assign(stored.shape.size(), 0);
  std::string name = stored.name;
  if (const auto entry = file.metadata().find(name); entry != file.metadata().end()) {
    std::optional<TensorPlace> place = place_of(entry->second);
    if (!place || !fits(*place, stored.shape)) {
      throw Error(file.name(), text_of("tensor ", quoted_name(name), " is ", shape_text(stored.shape),
                                       ", but its entry in __metadata__ is ", quoted_name(entry->second), ", which ",
                                       place ? "does not fit" : "is not \"OFFSET of SHAPE\""));
    }
    if (const std::string suffix = piece_name("", *place); name.ends_with(suffix)) {
      name.resize(name.size() - suffix.size());
    }
    box.offset = std::move(place->offset);
    box.whole = std::move(place->whole);
  }
  if (stored.element_count() > 0) {
    box.measure();
  } else {
    box.runs = 0;
  }
  boxes_[std::move(name)].push_back(std::move(box));
}

PiecedTensor PiecedTensors::at(std::string_view name, std::span<const std::int64_t> shape, std::int64_t first,
                               std::int64_t count) const {
  const auto found = boxes_.find(name);
  if (found == boxes_.end()) throw Error(where_, text_of("holds no tensor ", quoted_name(name)));
  PiecedTensor tensor;
  std::int64_t held = 0;
  for (const PiecedTensor::Box& box : found->second) {
    if (!std::ranges::equal(box.whole, shape)) {
      throw Error(box.stored->file, text_of("tensor ", quoted_name(name), " is ", shape_text(box.whole), ", expected ",
                                            shape_text(shape)));
    }
    const std::int64_t inside = box.before(first + count) - box.before(first);
    if (inside == 0) continue;
    for (const PiecedTensor::Box& other : tensor.boxes_) {
      if (!overlap(*box.stored, box.offset, *other.stored, other.offset)) continue;
      throw Error(where_, text_of("tensor ", quoted_name(name), ": the pieces ", quoted_name(other.stored->name),
                                  " and ", quoted_name(box.stored->name), " overlap"));
    }
    held += inside;
    tensor.boxes_.push_back(box);
  }
  if (held != count) {
    throw Error(where_, text_of("tensor ", quoted_name(name), " ", shape_text(shape), ": its pieces hold ", held,
                                " of the ", count, " elements that are needed"));
  }
  return tensor;
}

}  // namespace hone
