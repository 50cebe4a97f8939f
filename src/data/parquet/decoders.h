// Decoders of Parquet's values and levels. They decode one value at a time, so a page that claims many values in few
// bytes does not allocate memory for them.
// Source: https://github.com/apache/parquet-format/blob/master/Encodings.md
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "data/parquet/metadata.h"

namespace hone {

// An error message without a location, which the reader of the column adds.
struct DamagedPage {
  std::string_view what;
};

// Decodes runs of equal values and bit-packed groups of eight ("RLE/bit-packing hybrid").
class RunDecoder {
 public:
  RunDecoder() = default;
  RunDecoder(std::string_view bytes, int bit_width);  // at most 32
  [[nodiscard]] std::uint32_t next();                 // throws DamagedPage at the end

 private:
  std::string_view rest_;
  int bit_width_ = 0;
  std::uint64_t left_ = 0;  // values left in the current run
  bool packed_ = false;
  std::uint32_t value_ = 0;     // value of a run of equal values
  std::string_view group_;      // bytes of a bit-packed run
  std::uint64_t next_bit_ = 0;  // in group_
};

// A decoded value; the physical type decides which member is set.
struct ParquetValue {
  std::int64_t integer = 0;  // booleans and integers
  double real = 0;
  std::string_view bytes;  // valid until the next value is read
};

// Decodes the values of one page.
class ValueDecoder {
 public:
  virtual ~ValueDecoder() = default;
  virtual void next(ParquetValue& value) = 0;  // throws DamagedPage at the end
};

// Creates a decoder of the values of `leaf` that a page stores in `bytes`, for any encoding except dictionary
// encodings. Throws DamagedPage.
[[nodiscard]] std::unique_ptr<ValueDecoder> make_value_decoder(const ParquetNode& leaf, parquet::Encoding encoding,
                                                               std::string_view bytes);
// Creates a decoder of indices into `dictionary`, which must outlive it.
[[nodiscard]] std::unique_ptr<ValueDecoder> make_dictionary_decoder(const std::vector<ParquetValue>& dictionary,
                                                                    std::string_view bytes);

}  // namespace hone
