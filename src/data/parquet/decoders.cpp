#include "data/parquet/decoders.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

namespace hone {
namespace {

constexpr std::string_view kTooShort = "it ends too early";

void expect_page(bool condition, std::string_view what) {
  if (!condition) throw DamagedPage{what};
}

std::string_view take(std::string_view& bytes, std::uint64_t count) {
  expect_page(count <= bytes.size(), kTooShort);
  const std::string_view taken = bytes.substr(0, static_cast<std::size_t>(count));
  bytes.remove_prefix(taken.size());
  return taken;
}

template <class T>
T take_number(std::string_view& bytes) {
  T value;
  const std::string_view stored = take(bytes, sizeof value);
  std::memcpy(&value, stored.data(), stored.size());
  return value;
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto part = take_number<std::uint8_t>(bytes);
    value |= static_cast<std::uint64_t>(part & 0x7F) << shift;
    if (part < 0x80) return value;
  }
  throw DamagedPage{"a number is too long"};
}

std::int64_t take_zigzag(std::string_view& bytes) {
  const std::uint64_t value = take_varint(bytes);
  return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

// Returns `width` <= 64 bits from bit `at`, least significant first. They must be within `bytes`.
std::uint64_t bits_at(std::string_view bytes, std::uint64_t at, int width) {
  if (width == 0) return 0;
  const auto first = static_cast<std::size_t>(at / 8);
  const auto shift = static_cast<unsigned>(at % 8);
  std::array<std::uint8_t, 9> window{};
  const std::size_t count = (shift + static_cast<std::size_t>(width) + 7) / 8;
  expect_page(first + count <= bytes.size(), kTooShort);
  std::memcpy(window.data(), bytes.data() + first, count);
  std::uint64_t low = 0;
  std::memcpy(&low, window.data(), sizeof low);
  std::uint64_t value = low >> shift;
  if (shift > 0) value |= static_cast<std::uint64_t>(window[8]) << (64 - shift);
  return width == 64 ? value : value & ((std::uint64_t{1} << width) - 1);
}

// PLAIN: values of one physical type, laid end to end.
class PlainDecoder final : public ValueDecoder {
 public:
  PlainDecoder(const ParquetNode& leaf, std::string_view bytes) : type_(leaf.type), width_(leaf.width), rest_(bytes) {}

  void next(ParquetValue& value) override {
    switch (type_) {
      case parquet::Type::kBoolean:
        value.integer = static_cast<std::int64_t>(bits_at(rest_, bit_++, 1));
        return;
      case parquet::Type::kInt32:
        value.integer = take_number<std::int32_t>(rest_);
        return;
      case parquet::Type::kInt64:
        value.integer = take_number<std::int64_t>(rest_);
        return;
      case parquet::Type::kFloat:
        value.real = take_number<float>(rest_);
        return;
      case parquet::Type::kDouble:
        value.real = take_number<double>(rest_);
        return;
      case parquet::Type::kByteArray: {
        const auto size = take_number<std::uint32_t>(rest_);
        value.bytes = take(rest_, size);
        return;
      }
      case parquet::Type::kInt96:
      case parquet::Type::kFixedLenByteArray:
        value.bytes = take(rest_, static_cast<std::uint64_t>(width_));
        return;
    }
  }

 private:
  parquet::Type type_;
  int width_;
  std::string_view rest_;
  std::uint64_t bit_ = 0;
};

// RLE of booleans.
class RunBooleans final : public ValueDecoder {
 public:
  explicit RunBooleans(std::string_view bytes) {
    const auto size = take_number<std::uint32_t>(bytes);
    runs_ = RunDecoder(take(bytes, size), 1);
  }
  void next(ParquetValue& value) override { value.integer = runs_.next(); }

 private:
  RunDecoder runs_;
};

// RLE_DICTIONARY: run-length encoded indices.
class DictionaryDecoder final : public ValueDecoder {
 public:
  DictionaryDecoder(const std::vector<ParquetValue>& dictionary, std::string_view bytes) : dictionary_(dictionary) {
    if (bytes.empty()) return;  // a page that contains only nulls
    const auto width = take_number<std::uint8_t>(bytes);
    expect_page(width <= 32, "an index of more than 32 bits");
    runs_ = RunDecoder(bytes, width);
  }
  void next(ParquetValue& value) override {
    const std::uint32_t index = runs_.next();
    expect_page(index < dictionary_.size(), "an index is outside of the dictionary");
    value = dictionary_[index];
  }

 private:
  const std::vector<ParquetValue>& dictionary_;
  RunDecoder runs_;
};

// DELTA_BINARY_PACKED: differences in blocks of miniblocks; each miniblock has its own bit width.
class DeltaDecoder {
 public:
  explicit DeltaDecoder(std::string_view bytes) : rest_(bytes) {
    const std::uint64_t block = take_varint(rest_);
    const std::uint64_t miniblocks = take_varint(rest_);
    expect_page(block > 0 && block <= kLargestBlock && miniblocks > 0 && miniblocks <= block && block % miniblocks == 0,
                "a block of differences has an impossible size");
    values_ = block / miniblocks;
    expect_page(values_ % 8 == 0, "a block of differences has an impossible size");
    widths_count_ = miniblocks;
    left_ = take_varint(rest_);
    value_ = static_cast<std::uint64_t>(take_zigzag(rest_));
  }

  [[nodiscard]] std::uint64_t count() const { return left_; }

  [[nodiscard]] std::int64_t next() {
    expect_page(left_ > 0, kTooShort);
    --left_;
    if (first_) {
      first_ = false;
      return static_cast<std::int64_t>(value_);
    }
    if (in_miniblock_ == 0) begin_miniblock();
    const std::uint64_t delta = bits_at(packed_, (values_ - in_miniblock_) * width_, static_cast<int>(width_));
    --in_miniblock_;
    value_ += least_ + delta;
    return static_cast<std::int64_t>(value_);
  }

  // Returns the bytes after all values, without decoding them.
  [[nodiscard]] std::string_view behind() const {
    DeltaDecoder copy = *this;
    if (copy.left_ == 0) return copy.rest_;
    --copy.left_;
    while (copy.left_ > 0) {
      copy.begin_miniblock();
      copy.left_ -= std::min(copy.left_, copy.values_);
    }
    return copy.rest_;
  }

 private:
  static constexpr std::uint64_t kLargestBlock = std::uint64_t{1} << 20;

  void begin_miniblock() {
    if (widths_.empty()) {
      least_ = static_cast<std::uint64_t>(take_zigzag(rest_));
      widths_ = take(rest_, widths_count_);
    }
    width_ = static_cast<std::uint8_t>(widths_.front());
    widths_.remove_prefix(1);
    expect_page(width_ <= 64, "a difference of more than 64 bits");
    packed_ = take(rest_, values_ * width_ / 8);
    in_miniblock_ = values_;
  }

  std::string_view rest_;
  std::uint64_t values_ = 0;        // per miniblock
  std::uint64_t widths_count_ = 0;  // miniblocks per block
  std::uint64_t left_ = 0;
  bool first_ = true;
  std::uint64_t value_ = 0;  // modulo 2^64, as the format requires
  std::uint64_t least_ = 0;  // smallest difference of the block
  std::string_view widths_;  // bit widths of the miniblocks left in the block
  std::uint64_t width_ = 0;
  std::string_view packed_;         // values of the current miniblock
  std::uint64_t in_miniblock_ = 0;  // values left in it
};

class DeltaIntegers final : public ValueDecoder {
 public:
  DeltaIntegers(std::string_view bytes, bool is_32) : deltas_(bytes), is_32_(is_32) {}
  void next(ParquetValue& value) override {
    const std::int64_t wide = deltas_.next();
    value.integer = is_32_ ? static_cast<std::int32_t>(static_cast<std::uint32_t>(wide)) : wide;
  }

 private:
  DeltaDecoder deltas_;
  bool is_32_;
};

// DELTA_LENGTH_BYTE_ARRAY: all lengths, then all bytes.
class DeltaLengthBytes final : public ValueDecoder {
 public:
  explicit DeltaLengthBytes(std::string_view bytes) : lengths_(bytes), rest_(lengths_.behind()) {}
  void next(ParquetValue& value) override {
    const std::int64_t length = lengths_.next();
    expect_page(length >= 0, "a negative length");
    value.bytes = take(rest_, static_cast<std::uint64_t>(length));
  }

 private:
  DeltaDecoder lengths_;
  std::string_view rest_;
};

// DELTA_BYTE_ARRAY: the length of the prefix that each value shares with the previous one, and its suffix.
class DeltaBytes final : public ValueDecoder {
 public:
  explicit DeltaBytes(std::string_view bytes) : shared_(bytes), suffixes_(shared_.behind()) {}
  void next(ParquetValue& value) override {
    const std::int64_t shared = shared_.next();
    expect_page(shared >= 0 && static_cast<std::uint64_t>(shared) <= last_.size(), "a value shares more than there is");
    suffixes_.next(value);
    last_.resize(static_cast<std::size_t>(shared));
    last_ += value.bytes;
    value.bytes = last_;
  }

 private:
  DeltaDecoder shared_;
  DeltaLengthBytes suffixes_;
  std::string last_;
};

// BYTE_STREAM_SPLIT: the first bytes of all values, then the second bytes, and so on.
class SplitBytes final : public ValueDecoder {
 public:
  SplitBytes(const ParquetNode& leaf, std::string_view bytes) : leaf_(leaf), bytes_(bytes) {
    const bool is_wide = leaf.type == parquet::Type::kInt64 || leaf.type == parquet::Type::kDouble;
    width_ = leaf.type == parquet::Type::kFixedLenByteArray ? static_cast<std::size_t>(leaf.width) : is_wide ? 8 : 4;
    joined_.resize(width_);
  }
  void next(ParquetValue& value) override {
    const std::size_t count = bytes_.size() / width_;
    expect_page(next_ < count, kTooShort);
    for (std::size_t i = 0; i < width_; ++i) joined_[i] = bytes_[i * count + next_];
    ++next_;
    PlainDecoder(leaf_, joined_).next(value);
  }

 private:
  const ParquetNode& leaf_;
  std::string_view bytes_;
  std::size_t width_ = 4;
  std::size_t next_ = 0;
  std::string joined_;
};

}  // namespace

RunDecoder::RunDecoder(std::string_view bytes, int bit_width) : rest_(bytes), bit_width_(bit_width) {}

std::uint32_t RunDecoder::next() {
  while (left_ == 0) {
    const std::uint64_t header = take_varint(rest_);
    packed_ = (header & 1) != 0;
    if (packed_) {
      const std::uint64_t groups = header >> 1;
      expect_page(groups <= std::uint64_t{1} << 32, "a run is too long");
      // Some writers omit trailing bytes that the last group does not need.
      const std::uint64_t bytes =
          std::min<std::uint64_t>(groups * static_cast<std::uint64_t>(bit_width_), rest_.size());
      group_ = take(rest_, bytes);
      next_bit_ = 0;
      left_ = groups * 8;
    } else {
      left_ = header >> 1;
      const std::string_view stored = take(rest_, static_cast<std::uint64_t>(bit_width_ + 7) / 8);
      value_ = 0;
      std::memcpy(&value_, stored.data(), stored.size());
    }
  }
  --left_;
  if (!packed_) return value_;
  const std::uint64_t value = bits_at(group_, next_bit_, bit_width_);
  next_bit_ += static_cast<std::uint64_t>(bit_width_);
  return static_cast<std::uint32_t>(value);
}

std::unique_ptr<ValueDecoder> make_value_decoder(const ParquetNode& leaf, parquet::Encoding encoding,
                                                 std::string_view bytes) {
  const parquet::Type type = leaf.type;
  const bool is_integer = type == parquet::Type::kInt32 || type == parquet::Type::kInt64;
  const bool is_bytes = type == parquet::Type::kByteArray || type == parquet::Type::kFixedLenByteArray;
  switch (encoding) {
    case parquet::Encoding::kPlain:
      return std::make_unique<PlainDecoder>(leaf, bytes);
    case parquet::Encoding::kRle:
      if (type == parquet::Type::kBoolean) return std::make_unique<RunBooleans>(bytes);
      break;
    case parquet::Encoding::kDeltaBinaryPacked:
      if (is_integer) return std::make_unique<DeltaIntegers>(bytes, type == parquet::Type::kInt32);
      break;
    case parquet::Encoding::kDeltaLengthByteArray:
      if (type == parquet::Type::kByteArray) return std::make_unique<DeltaLengthBytes>(bytes);
      break;
    case parquet::Encoding::kDeltaByteArray:
      if (is_bytes) return std::make_unique<DeltaBytes>(bytes);
      break;
    case parquet::Encoding::kByteStreamSplit:
      if (type != parquet::Type::kBoolean && type != parquet::Type::kByteArray && type != parquet::Type::kInt96) {
        return std::make_unique<SplitBytes>(leaf, bytes);
      }
      break;
    default:
      break;
  }
  throw DamagedPage{"its encoding is not supported for its type"};
}

std::unique_ptr<ValueDecoder> make_dictionary_decoder(const std::vector<ParquetValue>& dictionary,
                                                      std::string_view bytes) {
  return std::make_unique<DictionaryDecoder>(dictionary, bytes);
}

}  // namespace hone
