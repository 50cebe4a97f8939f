#include "fuzz/target.h"

#include <sys/mman.h>
#include <unistd.h>

namespace hone::fuzz {

std::pair<std::string_view, std::string_view> parted(std::string_view text, char separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

MemoryFile::MemoryFile() : descriptor_(::memfd_create("input", MFD_CLOEXEC)) {
  HONE_ASSERT(descriptor_ >= 0);
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

void MemoryFile::set(std::string_view content) {
  HONE_ASSERT(::ftruncate(descriptor_, 0) == 0);
  for (std::size_t at = 0; at < content.size();) {
    const ssize_t written = ::pwrite(descriptor_, content.data() + at, content.size() - at, static_cast<::off_t>(at));
    HONE_ASSERT(written > 0);
    at += static_cast<std::size_t>(written);
  }
}

}  // namespace hone::fuzz
