#include "program/count.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <mutex>
#include <string>

#include "core/error.h"

namespace hone {
namespace {

constexpr std::size_t kLongestName = 32;

bool is_name(std::string_view text) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !text.empty() && text.size() <= kLongestName && is_letter(text.front()) &&
         std::ranges::all_of(text, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; });
}

// All names used in this process, indexed by id. A deque, so that the address of a name never changes.
struct Names {
  std::mutex mutex;
  std::deque<std::string> by_id{"", "tokens", "sequences", "samples"};
};

Names& names() {
  static Names names;
  return names;
}

}  // namespace

Count::Count(std::string_view name) {
  if (!is_name(name)) throw Error(text_of("'", name, "' is not a valid name of a count"));
  Names& known = names();
  const std::scoped_lock lock(known.mutex);
  const auto found = std::ranges::find(known.by_id, name);
  const std::size_t id = static_cast<std::size_t>(found - known.by_id.begin());
  if (found == known.by_id.end()) {
    if (id > std::numeric_limits<std::uint16_t>::max())
      throw Error(text_of("too many names of counts, cannot add ", name));
    known.by_id.emplace_back(name);
  }
  id_ = static_cast<std::uint16_t>(id);
}

std::string_view Count::name() const {
  Names& known = names();
  const std::scoped_lock lock(known.mutex);
  return known.by_id[id_];
}

}  // namespace hone
