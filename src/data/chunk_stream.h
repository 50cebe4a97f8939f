// The bytes of a file piece by piece, decompressed where its name says so.
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
  // The next piece, valid until the next call; empty at the end. Throws Error where the file cannot be read or its
  // compressed data is damaged or ends early.
  [[nodiscard]] virtual std::string_view next() = 0;
};

// A file that is not compressed comes mapped, as one piece.
[[nodiscard]] std::unique_ptr<ChunkStream> open_chunks(const std::filesystem::path& path, Compression compression);
// The same as text: a byte order mark at its start is left out.
[[nodiscard]] std::unique_ptr<ChunkStream> open_text_chunks(const std::filesystem::path& path, Compression compression);

// No row is longer; what is longer is no row, or a file that decompresses without end.
inline constexpr std::size_t kLongestRow = std::size_t{256} << 20;

// The lines of a text.
class LineScanner {
 public:
  LineScanner(const std::filesystem::path& path, Compression compression);
  // The next line without its newline, valid until the next call; false at the end. A text that ends with a newline has
  // no further, empty line. Throws Error where it is longer than kLongestRow.
  [[nodiscard]] bool next(std::string_view& line);
  [[nodiscard]] std::int64_t number() const { return number_; }  // of the line that came last, from 1

 private:
  std::string where_;
  std::unique_ptr<ChunkStream> chunks_;
  std::string_view rest_;  // of the piece at hand
  std::string joined_;     // a line that several pieces hold
  std::int64_t number_ = 0;
};

}  // namespace hone
