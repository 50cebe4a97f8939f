// Helpers shared by the fuzz targets. A target gives arbitrary bytes to one parser. The parser may reject them with an
// Error of one line. Any other exception, a crash, a hang or a violated property is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"

// Begins the definition of a target: HONE_FUZZ_TARGET(yaml)(const std::uint8_t* data, std::size_t size) { ... }. With
// libFuzzer each target is a program, otherwise one program (replay.cpp) has all of them by name.
#ifdef HONE_FUZZ
#define HONE_FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput
#else
#define HONE_FUZZ_TARGET(name)                                                    \
  static int name##_target(const std::uint8_t* data, std::size_t size);           \
  static const bool name##_added = hone::fuzz::add_target(#name, &name##_target); \
  static int name##_target
#endif

namespace hone::fuzz {

using Target = int (*)(const std::uint8_t* data, std::size_t size);

#ifndef HONE_FUZZ
// Names a target for replay.cpp. Returns true.
bool add_target(std::string_view name, Target target);
#endif

[[nodiscard]] inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Splits the text at the first `separator`. Without one, the second part is empty.
[[nodiscard]] std::pair<std::string_view, std::string_view> parted(std::string_view text, char separator);

// Runs `read`. Returns true if it completed and false if it threw an Error, whose message must be one line.
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

// A file in memory (memfd) with a path that this process can open.
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
