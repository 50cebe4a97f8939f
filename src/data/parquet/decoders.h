// The encodings of Parquet's values and levels. All read value by value, so that a page which claims many values from
// few bytes takes no memory.
// Source: https://github.com/apache/parquet-format/blob/master/Encodings.md
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "data/parquet/metadata.h"

namespace hone {

// Thrown without a place; the reader of the column adds it.
struct DamagedPage {
  std::string_view what;
};

// Runs of equal values and bit-packed groups of eight ("RLE/bit-packing hybrid").
class RunDecoder {
 public:
  RunDecoder() = default;
  RunDecoder(std::string_view bytes, int bit_width);  // at most 32
  [[nodiscard]] std::uint32_t next();                 // throws DamagedPage at the end

 private:
  std::string_view rest_;
  int bit_width_ = 0;
  std::uint64_t left_ = 0;  // of the run at hand
  bool packed_ = false;
  std::uint32_t value_ = 0;     // of a run of equal values
  std::string_view group_;      // of bit-packed values
  std::uint64_t next_bit_ = 0;  // in group_
};

struct ParquetValue {
  std::int64_t integer = 0;  // booleans and integers
  double real = 0;
  std::string_view bytes;  // valid until the next value is read
};

class ValueDecoder {
 public:
  virtual ~ValueDecoder() = default;
  virtual void next(ParquetValue& value) = 0;  // throws DamagedPage at the end
};

// Of the `leaf`'s values that a page's `bytes` hold, in an encoding other than a dictionary's. Throws DamagedPage.
[[nodiscard]] std::unique_ptr<ValueDecoder> make_value_decoder(const ParquetNode& leaf, std::int32_t encoding,
                                                               std::string_view bytes);
// Indices into `dictionary`, which must outlive it.
[[nodiscard]] std::unique_ptr<ValueDecoder> make_dictionary_decoder(const std::vector<ParquetValue>& dictionary,
                                                                    std::string_view bytes);

}  // namespace hone
