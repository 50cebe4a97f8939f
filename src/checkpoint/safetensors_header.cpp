#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"

namespace hone {
namespace {

constexpr std::size_t kMaxRank = 64;

// A streaming parser for the only structure that a header may have. It stops at the first byte that violates the
// structure, so hostile input, however deep or long, costs no more than reading it.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(std::string_view where) : where_(where) {}

  SafetensorsHeader take() && { return std::move(header_); }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool number_integer(number_integer_t value) override { return unexpected(text_of(value)); }
  bool number_float(number_float_t, const string_t& text) override { return unexpected(text); }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool start_object(std::size_t) override;
  bool key(string_t& value) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw Error(where_, text_of("the header is not valid JSON at byte ", position));
  }

 private:
  enum class Place : std::uint8_t { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };
  enum class Field : std::uint8_t { kNone, kDtype, kShape, kDataOffsets };

  bool unexpected(std::string_view what) { fail(text_of("the header holds ", what, " where it may not")); }
  [[noreturn]] void fail(std::string_view what) {
    const bool inside = place_ == Place::kTensor || place_ == Place::kShape || place_ == Place::kOffsets;
    throw Error(where_, inside ? text_of("tensor ", quoted_name(entry_.name), ": ", what) : std::string(what));
  }

  std::string_view where_;
  SafetensorsHeader header_;
  Place place_ = Place::kStart;
  Field field_ = Field::kNone;
  HeaderEntry entry_;
  std::string metadata_key_;
  std::vector<std::uint64_t> offsets_;
  bool in_metadata_ = false;
  bool has_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

bool HeaderReader::number_unsigned(number_unsigned_t value) {
  if (place_ == Place::kShape) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail(text_of("a dimension of ", value, " is too large"));
    }
    if (entry_.shape.size() == kMaxRank) fail(text_of("has more than ", kMaxRank, " dimensions"));
    entry_.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  if (place_ == Place::kOffsets) {
    if (offsets_.size() == 2) fail("data_offsets holds more than two numbers");
    offsets_.push_back(value);
    return true;
  }
  return unexpected(text_of(value));
}

bool HeaderReader::string(string_t& value) {
  if (place_ == Place::kMetadata) {
    header_.metadata[metadata_key_] = std::move(value);
    return true;
  }
  if (place_ == Place::kTensor && field_ == Field::kDtype) {
    const auto type = stored_type_from_name(value);
    if (!type) fail(text_of("unknown dtype ", quoted_name(value)));
    entry_.type = *type;
    field_ = Field::kNone;
    return true;
  }
  return unexpected(text_of("the text ", quoted_name(value)));
}

bool HeaderReader::start_object(std::size_t) {
  if (place_ == Place::kStart) {
    place_ = Place::kTop;
  } else if (place_ == Place::kTop) {
    place_ = in_metadata_ ? Place::kMetadata : Place::kTensor;
  } else {
    return unexpected("an object");
  }
  return true;
}

bool HeaderReader::key(string_t& value) {
  if (place_ == Place::kTop) {
    in_metadata_ = value == "__metadata__";
    if (in_metadata_ && std::exchange(has_metadata_, true)) fail("the header holds __metadata__ twice");
    entry_ = {};
    entry_.name = std::move(value);
    offsets_.clear();
    has_dtype_ = has_shape_ = has_offsets_ = false;
    return true;
  }
  if (place_ == Place::kMetadata) {
    metadata_key_ = std::move(value);
    if (header_.metadata.contains(metadata_key_)) {
      fail(text_of("__metadata__ holds ", quoted_name(metadata_key_), " twice"));
    }
    return true;
  }
  const auto once = [&](bool& seen, Field field) {
    if (std::exchange(seen, true)) fail(text_of(value, " is given twice"));
    field_ = field;
  };
  if (value == "dtype") {
    once(has_dtype_, Field::kDtype);
  } else if (value == "shape") {
    once(has_shape_, Field::kShape);
  } else if (value == "data_offsets") {
    once(has_offsets_, Field::kDataOffsets);
  } else {
    fail(text_of("unknown field ", quoted_name(value)));
  }
  return true;
}

bool HeaderReader::end_object() {
  if (place_ == Place::kTensor) {
    if (!has_dtype_) fail("dtype is missing");
    if (!has_shape_) fail("shape is missing");
    if (!has_offsets_) fail("data_offsets is missing");
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header_.entries.push_back(std::move(entry_));
  }
  place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
  return true;
}

bool HeaderReader::start_array(std::size_t) {
  if (place_ != Place::kTensor) return unexpected("a list");
  if (field_ == Field::kShape) {
    place_ = Place::kShape;
  } else if (field_ == Field::kDataOffsets) {
    place_ = Place::kOffsets;
  } else {
    return unexpected("a list");
  }
  return true;
}

bool HeaderReader::end_array() {
  if (place_ == Place::kOffsets && offsets_.size() != 2) fail("data_offsets needs two numbers");
  place_ = Place::kTensor;
  field_ = Field::kNone;
  return true;
}

// Size in bytes by type and shape, or nothing if the product overflows.
std::optional<std::uint64_t> expected_size(const HeaderEntry& entry) {
  std::uint64_t size = size_of(entry.type);
  bool empty = false;
  bool overflow = false;
  for (const std::int64_t dimension : entry.shape) {
    empty = empty || dimension == 0;
    overflow = __builtin_mul_overflow(size, static_cast<std::uint64_t>(dimension), &size) || overflow;
  }
  if (empty) return 0;
  if (overflow) return std::nullopt;
  return size;
}

void check_entry(const HeaderEntry& entry, std::uint64_t data_size, std::string_view where) {
  const auto fail = [&](const std::string& what) {
    throw Error(where, text_of("tensor ", quoted_name(entry.name), ": ", what));
  };
  if (entry.end < entry.begin) fail(text_of("data_offsets run backwards: [", entry.begin, ", ", entry.end, "]"));
  if (entry.end > data_size) {
    fail(text_of("ends at byte ", entry.end, " of the data, which has only ", data_size, "; the file is cut short"));
  }
  const auto expected = expected_size(entry);
  if (!expected) return fail(text_of("the shape ", shape_text(entry.shape), " is too large"));
  if (*expected != entry.end - entry.begin) {
    fail(text_of(name_of(entry.type), " ", shape_text(entry.shape), " needs ", *expected, " bytes, data_offsets give ",
                 entry.end - entry.begin));
  }
}

// Checks that the tensors cover the data from the first byte to the last, each byte exactly once.
void check_layout(const std::vector<HeaderEntry>& entries, std::uint64_t data_size, std::string_view where) {
  std::uint64_t covered = 0;
  std::unordered_set<std::string_view> names;
  for (const HeaderEntry& entry : entries) {
    check_entry(entry, data_size, where);
    if (!names.insert(entry.name).second) {
      throw Error(where, text_of("tensor ", quoted_name(entry.name), " is in the header twice"));
    }
    if (entry.begin != covered) {
      throw Error(where, text_of("tensor ", quoted_name(entry.name), " begins at byte ", entry.begin, " of the data, ",
                                 entry.begin < covered ? "inside the one before it, which ends at "
                                                       : "behind a gap that begins at ",
                                 covered));
    }
    covered = entry.end;
  }
  if (covered != data_size) {
    throw Error(where, text_of("its tensors end at byte ", covered, " of the data, which has ", data_size));
  }
}

}  // namespace

std::string quoted_name(std::string_view name) {
  constexpr std::size_t kMaxLength = 120;
  std::string text = "'";
  for (const char c : name.substr(0, kMaxLength)) text += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  text += name.size() > kMaxLength ? "...'" : "'";
  return text;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_size, std::string_view where) {
  if (text.empty() || text.front() != '{') throw Error(where, "the header does not begin with '{'");
  HeaderReader reader(where);
  read_json_values(text, reader);
  SafetensorsHeader header = std::move(reader).take();
  std::ranges::stable_sort(header.entries, {}, [](const HeaderEntry& e) { return std::pair(e.begin, e.end); });
  check_layout(header.entries, data_size, where);
  return header;
}

}  // namespace hone
