#include "data/parquet/column_cursor.h"

#include <lz4.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include <bit>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/strings.h"
#include "data/file_format.h"

namespace hone {
namespace {

// Largest possible compression ratio: zstd stores a run of 128 KiB in 4 bytes. A page that claims more is damaged.
// Pages of at most kSmallPage are not checked.
constexpr std::size_t kMostPageRatio = 32'768;
constexpr std::size_t kSmallPage = std::size_t{1} << 20;

bool inflate_all(std::string_view stored, std::string& plain) {
  z_stream stream{};
  if (inflateInit2(&stream, 32 + MAX_WBITS) != Z_OK) return false;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(stored.data()));
  stream.avail_in = static_cast<uInt>(stored.size());
  stream.next_out = reinterpret_cast<Bytef*>(plain.data());
  stream.avail_out = static_cast<uInt>(plain.size());
  const int status = inflate(&stream, Z_FINISH);
  const bool whole = status == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  return whole;
}

std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

bool lz4_block(std::string_view stored, char* out, std::size_t size) {
  return LZ4_decompress_safe(stored.data(), out, static_cast<int>(stored.size()), static_cast<int>(size)) ==
         static_cast<int>(size);
}

// Hadoop's frames: the sizes before and after compression precede each block. Some writers omit them and store one raw
// block.
bool lz4_hadoop(std::string_view stored, std::string& plain) {
  const std::string_view all = stored;
  std::size_t done = 0;
  while (stored.size() >= 8) {
    const std::uint32_t size = big_endian(stored);
    const std::uint32_t bytes = big_endian(stored.substr(4));
    if (bytes > stored.size() - 8 || size > plain.size() - done) break;
    if (!lz4_block(stored.substr(8, bytes), plain.data() + done, size)) break;
    stored.remove_prefix(8 + std::size_t{bytes});
    done += size;
  }
  return (stored.empty() && done == plain.size()) || lz4_block(all, plain.data(), plain.size());
}

int bits_for(int level) { return std::bit_width(static_cast<unsigned>(level)); }

}  // namespace

bool decompress_page(parquet::CompressionCodec codec, std::string_view stored, std::string& plain,
                     const std::string& where) {
  switch (codec) {
    case parquet::CompressionCodec::kUncompressed:
      if (stored.size() != plain.size()) return false;
      plain.assign(stored);
      return true;
    case parquet::CompressionCodec::kSnappy: {
      std::size_t size = 0;
      if (snappy_uncompressed_length(stored.data(), stored.size(), &size) != SNAPPY_OK || size != plain.size()) {
        return false;
      }
      return snappy_uncompress(stored.data(), stored.size(), plain.data(), &size) == SNAPPY_OK;
    }
    case parquet::CompressionCodec::kGzip:
      return inflate_all(stored, plain);
    case parquet::CompressionCodec::kZstd:
      return ZSTD_decompress(plain.data(), plain.size(), stored.data(), stored.size()) == plain.size();
    case parquet::CompressionCodec::kLz4Raw:
      return lz4_block(stored, plain.data(), plain.size());
    case parquet::CompressionCodec::kLz4:
      return lz4_hadoop(stored, plain);
    case parquet::CompressionCodec::kLzo:
    case parquet::CompressionCodec::kBrotli:
      break;
  }
  throw Error(where,
              text_of(codec == parquet::CompressionCodec::kLzo ? "LZO" : "Brotli", " compression is not supported"),
              "write it with snappy, zstd, gzip or lz4");
}

ColumnCursor::ColumnCursor(std::string_view file, const ParquetColumnChunk& chunk, const ParquetNode& leaf,
                           std::string where)
    : leaf_(leaf),
      where_(std::move(where)),
      codec_(chunk.codec),
      rest_(file.substr(static_cast<std::size_t>(chunk.offset), static_cast<std::size_t>(chunk.bytes))),
      entries_left_(chunk.values) {}

void ColumnCursor::fail(std::string_view what) const {
  throw Error(where_, text_of("damaged column '", leaf_.name, "': ", what), kFetchAgain);
}

bool ColumnCursor::at_end() {
  while (in_page_ == 0 && entries_left_ > 0) begin_page();
  return in_page_ == 0;
}

void ColumnCursor::need_entry() {
  if (is_read_) return;
  if (at_end()) fail("it has fewer values than the other columns");
  try {
    repetition_ = leaf_.repeat > 0 ? static_cast<int>(repetitions_.next()) : 0;
    definition_ = leaf_.definition > 0 ? static_cast<int>(definitions_.next()) : 0;
  } catch (const DamagedPage& damage) {
    fail(damage.what);
  }
  if (repetition_ > leaf_.repeat || definition_ > leaf_.definition) fail("a level is out of range");
  is_read_ = true;
}

int ColumnCursor::repetition() {
  need_entry();
  return repetition_;
}

int ColumnCursor::definition() {
  need_entry();
  return definition_;
}

const ParquetValue* ColumnCursor::take() {
  need_entry();
  is_read_ = false;
  --in_page_;
  if (definition_ < leaf_.definition) return nullptr;
  try {
    values_->next(value_);
  } catch (const DamagedPage& damage) {
    fail(damage.what);
  }
  return &value_;
}

void ColumnCursor::skip(std::int64_t entries) {
  while (entries > 0) {
    if (is_read_ || in_page_ > 0) {
      (void)take();
      --entries;
      continue;
    }
    if (entries_left_ == 0) fail("it has fewer values than the other columns");
    std::string_view stored;
    const ParquetPageHeader page = next_page(stored);
    const bool is_data = page.type == parquet::PageType::kDataPage || page.type == parquet::PageType::kDataPageV2;
    if (is_data && page.values <= entries && page.values <= entries_left_) {
      entries -= page.values;
      entries_left_ -= page.values;
    } else {
      read_page(page, stored);
    }
  }
}

void ColumnCursor::begin_page() {
  std::string_view stored;
  const ParquetPageHeader page = next_page(stored);
  read_page(page, stored);
}

ParquetPageHeader ColumnCursor::next_page(std::string_view& stored) {
  if (rest_.empty()) fail("it has fewer pages than it should");
  std::size_t header_size = 0;
  const ParquetPageHeader page = read_page_header(rest_, where_, header_size);
  rest_.remove_prefix(header_size);
  const auto stored_bytes = static_cast<std::size_t>(page.stored_bytes);
  if (stored_bytes > rest_.size()) fail("a page ends too early");
  stored = rest_.substr(0, stored_bytes);
  rest_.remove_prefix(stored_bytes);
  return page;
}

void ColumnCursor::read_page(const ParquetPageHeader& page, std::string_view stored) {
  if (page.has_checksum) {
    const uLong sum = crc32_z(0, reinterpret_cast<const Bytef*>(stored.data()), stored.size());
    if (static_cast<std::uint32_t>(sum) != page.checksum) fail("a page does not match its checksum");
  }
  try {
    if (page.type == parquet::PageType::kDictionaryPage) read_dictionary(page, stored);
    if (page.type == parquet::PageType::kDataPage || page.type == parquet::PageType::kDataPageV2) {
      read_data(page, stored);
    }
  } catch (const DamagedPage& damage) {
    fail(damage.what);
  }
}

std::string_view ColumnCursor::uncompressed(const ParquetPageHeader& page, std::string_view stored,
                                            std::string& plain) {
  const std::size_t levels =
      static_cast<std::size_t>(page.definition_bytes) + static_cast<std::size_t>(page.repetition_bytes);
  if (codec_ == parquet::CompressionCodec::kUncompressed || !page.is_compressed) return stored;
  if (static_cast<std::size_t>(page.plain_bytes) < levels) fail("a page's levels are longer than it");
  const std::size_t size = static_cast<std::size_t>(page.plain_bytes) - levels;
  if (size > kSmallPage && size / kMostPageRatio > stored.size()) fail("a page has an impossible size");
  plain.resize(size);
  if (!decompress_page(codec_, stored, plain, where_)) {
    if (size == 0) return {};  // only nulls: some writers store nothing
    fail("a page cannot be decompressed");
  }
  return plain;
}

void ColumnCursor::read_dictionary(const ParquetPageHeader& page, std::string_view stored) {
  if (has_dictionary_) fail("it has two dictionaries");
  has_dictionary_ = true;
  std::string_view bytes = uncompressed(page, stored, dictionary_page_);
  const auto decoder = make_value_decoder(leaf_, parquet::Encoding::kPlain, bytes);
  // A value takes at least one bit.
  if (static_cast<std::size_t>(page.values) > bytes.size() * 8) fail("its dictionary ends too early");
  dictionary_.resize(static_cast<std::size_t>(page.values));
  for (ParquetValue& value : dictionary_) decoder->next(value);
}

void ColumnCursor::read_data(const ParquetPageHeader& page, std::string_view stored) {
  if (page.values > entries_left_) fail("its pages contain more values than its metadata says");
  const auto cut = [&](std::string_view& bytes, std::size_t size) {
    if (size > bytes.size()) fail("a page's levels end too early");
    const std::string_view part = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return part;
  };
  std::string_view bytes;
  if (page.type == parquet::PageType::kDataPageV2) {
    const std::string_view repetitions = cut(stored, static_cast<std::size_t>(page.repetition_bytes));
    const std::string_view definitions = cut(stored, static_cast<std::size_t>(page.definition_bytes));
    repetitions_ = RunDecoder(repetitions, bits_for(leaf_.repeat));
    definitions_ = RunDecoder(definitions, bits_for(leaf_.definition));
    bytes = uncompressed(page, stored, page_);
    // The level decoders refer to the mapped file, not to page_.
  } else {
    bytes = uncompressed(page, stored, page_);
    const auto levels = [&](int highest, parquet::Encoding encoding) {
      if (highest == 0) return RunDecoder();
      if (encoding != parquet::Encoding::kRle) fail("its levels are in an encoding that is not supported");
      std::uint32_t size = 0;
      const std::string_view size_bytes = cut(bytes, sizeof size);
      std::memcpy(&size, size_bytes.data(), sizeof size);
      return RunDecoder(cut(bytes, size), bits_for(highest));
    };
    repetitions_ = levels(leaf_.repeat, page.repetition_encoding);
    definitions_ = levels(leaf_.definition, page.definition_encoding);
  }
  if (page.encoding == parquet::Encoding::kRleDictionary || page.encoding == parquet::Encoding::kPlainDictionary) {
    if (!has_dictionary_) fail("its dictionary is missing");
    values_ = make_dictionary_decoder(dictionary_, bytes);
  } else {
    values_ = bytes.empty() && page.values > 0 ? make_dictionary_decoder(dictionary_, {})
                                               : make_value_decoder(leaf_, page.encoding, bytes);
  }
  in_page_ = page.values;
  entries_left_ -= page.values;
}

}  // namespace hone
