// A column of a row group, entry by entry; one page at a time is in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/parquet/decoders.h"
#include "data/parquet/metadata.h"

namespace hone {

// Decompresses into `plain`, whose size says how many bytes there must be. False where the data is damaged. Throws
// Error, beginning with `where`, where the compression is not supported.
[[nodiscard]] bool decompress_page(ParquetCodec codec, std::string_view stored, std::string& plain,
                                   const std::string& where);

// An entry is a value or a null, with the levels that say where in a record it stands.
// Source: Melnik et al., "Dremel: Interactive Analysis of Web-Scale Datasets", 2010, section 4.
class ColumnCursor {
 public:
  // `file`, `leaf` must outlive it. All that reads throws Error, beginning with `where`.
  ColumnCursor(std::string_view file, const ParquetColumnChunk& chunk, const ParquetNode& leaf, std::string where);

  [[nodiscard]] bool at_end();
  // Of the next entry, which must be there.
  [[nodiscard]] int repetition();
  [[nodiscard]] int definition();
  // Takes the next entry: its value, valid until the next call of any function here, or nullptr where it is null.
  [[nodiscard]] const ParquetValue* take();
  // Passes over entries, which must be there; pages that hold no others are not read.
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
  ParquetCodec codec_;
  std::string_view rest_;      // of the chunk
  std::int64_t entries_left_;  // in the pages that are not begun
  std::int64_t in_page_ = 0;   // entries left in the page at hand
  bool is_read_ = false;       // whether the levels are the next entry's
  int repetition_ = 0;
  int definition_ = 0;
  RunDecoder repetitions_;
  RunDecoder definitions_;
  std::unique_ptr<ValueDecoder> values_;
  std::string page_;             // what the page at hand decompressed to
  std::string dictionary_page_;  // what dictionary_ points into
  std::vector<ParquetValue> dictionary_;
  bool has_dictionary_ = false;
  ParquetValue value_;
};

}  // namespace hone
