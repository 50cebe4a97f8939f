#include "program/memory_fit.h"

#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::size_t kNotable = std::size_t{1} << 30;  // least bytes in use that a message mentions

}  // namespace

std::vector<FitChange> changes_to_fit(std::span<const std::string> changes, std::size_t available, std::size_t bytes,
                                      const BytesAfter& bytes_after) {
  std::vector<FitChange> taken;
  for (std::size_t i = 0; i < changes.size() && bytes > available; ++i) {
    const std::size_t then = bytes_after(i + 1);
    if (then >= bytes) continue;
    taken.push_back({changes[i], then});
    bytes = then;
  }
  return taken;
}

std::string memory_in_use_text(DeviceMemory there, std::size_t bytes) {
  const std::size_t used = there.total - there.available;
  if (bytes > there.total || used < kNotable) return {};
  return text_of(format_bytes(used),
                 " are already in use, possibly by other processes: freeing them would be enough; ");
}

std::string advice_text(std::span<const FitChange> changes, std::size_t available) {
  std::string text;
  for (const FitChange& change : changes) {
    if (!text.empty()) text += ", then ";
    text += text_of(change.text, " (takes ", format_bytes(change.bytes), ")");
  }
  if (changes.empty())
    return "no option saves enough memory: use a smaller model, shorter sequences or a larger device";
  if (changes.back().bytes <= available) return "it fits with " + text;
  return text_of("even with ", text, " it still lacks ", format_bytes(changes.back().bytes - available), " of memory");
}

}  // namespace hone
