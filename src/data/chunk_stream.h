// Reads a file piece by piece and decompresses it if its name says that it is compressed.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "data/file_format.h"

namespace hone {

class ChunkStream {
 public:
  virtual ~ChunkStream() = default;
  // Returns the next piece, valid until the next call, or an empty view at the end. Throws Error if the file cannot be
  // read, or if its compressed data is damaged or truncated.
  [[nodiscard]] virtual std::string_view next() = 0;
};

// Opens a file. An uncompressed file is mapped and comes as one piece.
[[nodiscard]] std::unique_ptr<ChunkStream> open_chunks(const std::filesystem::path& path, Compression compression);
// Opens a text file: the same as open_chunks, but a byte order mark at the start is skipped.
[[nodiscard]] std::unique_ptr<ChunkStream> open_text_chunks(const std::filesystem::path& path, Compression compression);

// Upper limit of a row in bytes (256 MiB). A longer one is not a row, or the file decompresses without end.
inline constexpr std::size_t kLongestRow = std::size_t{256} << 20;

// Splits a text into lines.
class LineScanner {
 public:
  LineScanner(const std::filesystem::path& path, Compression compression);
  // Sets `line` to the next line without its newline, valid until the next call; returns false at the end. A final
  // newline does not start another, empty line. Throws Error if a line is longer than kLongestRow.
  [[nodiscard]] bool next(std::string_view& line);
  [[nodiscard]] std::int64_t number() const { return number_; }  // number of the last line, from 1

 private:
  std::string where_;
  std::unique_ptr<ChunkStream> chunks_;
  std::string_view rest_;  // unread rest of the current piece
  std::string joined_;     // a line that spans several pieces
  std::int64_t number_ = 0;
};

}  // namespace hone
