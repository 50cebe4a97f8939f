#include "program/type.h"

#include <charconv>
#include <string_view>

#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

std::int64_t size_from_text(std::string_view text, std::string_view dimension) {
  std::int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size() || size < 0) {
    throw Error(text_of("'", dimension, "' is not a dimension"));
  }
  return size;
}

// Parses "1024", "tokens:1024" or "8*tokens:8192".
Dim dim_from_text(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return size_from_text(text, text);
  std::string_view count = text.substr(0, colon);
  std::int64_t factor = 1;
  if (const std::size_t star = count.find('*'); star != std::string_view::npos) {
    factor = size_from_text(count.substr(0, star), text);
    count.remove_prefix(star + 1);
  }
  return {size_from_text(text.substr(colon + 1), text), Count(count), factor};
}

}  // namespace

void Type::check() const {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;
  std::uint64_t product = size_of(dtype);
  for (const Dim& dim : shape) {
    if (dim.size < 0) throw Error(text_of(to_text(*this), " has a negative dimension"));
    if (dim.count != Count::none && &dim != shape.data()) {
      throw Error(text_of(to_text(*this), " has a count on a dimension other than the first"));
    }
    if (dim.factor < 1 || dim.size % dim.factor != 0) {
      throw Error(text_of(to_text(*this), " has a factor that does not divide its capacity"));
    }
    // A dimension of 0 counts as 1 here: the products of the other dimensions must not overflow either.
    const std::uint64_t factor = dim.size == 0 ? 1 : static_cast<std::uint64_t>(dim.size);
    if (__builtin_mul_overflow(product, factor, &product) || product > kMostBytes) {
      throw Error(text_of(to_text(*this), " is too large"));
    }
  }
}

std::int64_t Type::elements() const {
  std::int64_t product = 1;
  for (const Dim& dim : shape) product *= dim.size;
  return product;
}

std::int64_t Type::row_size() const {
  std::int64_t product = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) product *= shape[i].size;
  return product;
}

std::size_t Type::bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }

std::string to_text(const Type& type) {
  std::string text(name_of(type.dtype));
  text.push_back('[');
  for (std::size_t i = 0; i < type.shape.size(); ++i) {
    if (i > 0) text.append(", ");
    const Dim& dim = type.shape[i];
    if (dim.factor != 1) text.append(std::to_string(dim.factor)).push_back('*');
    if (dim.count != Count::none) text.append(dim.count.name()).push_back(':');
    text.append(std::to_string(dim.size));
  }
  return text + "]";
}

Type type_from_text(std::string_view text) {
  const std::size_t open = text.find('[');
  if (open == std::string_view::npos || text.back() != ']') throw Error(text_of("'", text, "' is not a type"));
  Type type{dtype_from_name(text.substr(0, open)), {}};
  const std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  if (trim(inside).empty()) return type;
  for (const std::string& part : split(inside, ',')) type.shape.push_back(dim_from_text(trim(part)));
  type.check();
  return type;
}

}  // namespace hone
