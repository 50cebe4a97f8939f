// Reads a column of a Parquet row group entry by entry; only one page at a time is in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/parquet/decoders.h"
#include "data/parquet/metadata.h"

namespace hone {

// Decompresses into `plain`, whose size is the expected number of bytes. Returns false if the data is damaged. Throws
// Error that begins with `where` if the codec is not supported.
[[nodiscard]] bool decompress_page(parquet::CompressionCodec codec, std::string_view stored, std::string& plain,
                                   const std::string& where);

// Iterates over entries. An entry is a value or a null, with the levels that locate it within a record.
// Source: Melnik et al., "Dremel: Interactive Analysis of Web-Scale Datasets", 2010, section 4.
class ColumnCursor {
 public:
  // `file` and `leaf` must outlive the cursor. Its functions throw Error that begins with `where`.
  ColumnCursor(std::string_view file, const ParquetColumnChunk& chunk, const ParquetNode& leaf, std::string where);

  [[nodiscard]] bool at_end();
  // Levels of the next entry, which must exist.
  [[nodiscard]] int repetition();
  [[nodiscard]] int definition();
  // Takes the next entry: returns its value, valid until the next call of any function here, or nullptr if it is null.
  [[nodiscard]] const ParquetValue* take();
  // Skips entries, which must exist. Pages that contain only skipped entries are not decoded.
  void skip(std::int64_t entries);

 private:
  [[noreturn]] void fail(std::string_view what) const;
  void need_entry();
  void begin_page();
  [[nodiscard]] ParquetPageHeader next_page(std::string_view& stored);
  void read_page(const ParquetPageHeader& page, std::string_view stored);
  void read_dictionary(const ParquetPageHeader& page, std::string_view stored);
  void read_data(const ParquetPageHeader& page, std::string_view stored);
  [[nodiscard]] std::string_view uncompressed(const ParquetPageHeader& page, std::string_view stored,
                                              std::string& plain);

  const ParquetNode& leaf_;
  std::string where_;
  parquet::CompressionCodec codec_;
  std::string_view rest_;      // unread pages of the chunk
  std::int64_t entries_left_;  // entries in the pages that are not started
  std::int64_t in_page_ = 0;   // entries left in the current page
  bool is_read_ = false;       // the levels of the next entry are already read
  int repetition_ = 0;
  int definition_ = 0;
  RunDecoder repetitions_;
  RunDecoder definitions_;
  std::unique_ptr<ValueDecoder> values_;
  std::string page_;             // decompressed data of the current page
  std::string dictionary_page_;  // decompressed data that dictionary_ refers to
  std::vector<ParquetValue> dictionary_;
  bool has_dictionary_ = false;
  ParquetValue value_;
};

}  // namespace hone
