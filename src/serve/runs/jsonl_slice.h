// Reads a file of lines piece by piece while another process appends to it or replaces it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace hone {

// A position in a file, and what is before it.
struct FilePosition {
  std::uint64_t offset = 0;  // bytes
  std::string check;         // a hash of the bytes before the offset, at most 256 of them
};

struct LineSlice {
  bool restarted = false;  // the file is not the one that the position comes from, so the lines are its first ones
  FilePosition next;       // after the last line
  std::uint64_t size = 0;  // bytes of the file
  std::vector<std::string> lines;  // without line breaks
};

struct SliceLimits {
  std::size_t bytes = 1 << 20;  // a longer line is returned in pieces
  std::size_t lines = 100'000;
};

// Reads whole lines from a position on. A last line without a line break is being written and is left for later. If the
// file is shorter than the position, or the bytes before it are others, it has been replaced and is read from its
// beginning. Throws Error if the path is not a regular file or cannot be read.
[[nodiscard]] LineSlice read_lines(const std::filesystem::path& path, const FilePosition& from,
                                   const SliceLimits& limits = {});

}  // namespace hone
