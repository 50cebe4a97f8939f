// What the fuzz targets share. A target reads arbitrary bytes with one parser. The parser may refuse them, with an
// Error of one line; any other exception, a crash, a hang or a property that does not hold is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace hone::fuzz {

[[nodiscard]] inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Before and after the first `separator`; all and nothing where there is none.
[[nodiscard]] std::pair<std::string_view, std::string_view> parted(std::string_view text, char separator);

// Runs `read`. Says whether it came to its end, rather than throw an Error.
template <class Read>
bool accepts(const Read& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    const std::string_view line = error.what();
    HONE_ASSERT(!line.empty() && line.find('\n') == std::string_view::npos, "not one line: ", line);
    return false;
  }
}

// A file that lies in memory, with a path by which this process can open it.
class MemoryFile {
 public:
  MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();
  void set(std::string_view content);
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  int descriptor_;
  std::filesystem::path path_;
};

}  // namespace hone::fuzz
