#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "data/arrow/arrow_batch.h"
#include "data/arrow/arrow_format.h"
#include "data/file_format.h"
#include "data/readers.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kSmallestFile = 24;  // bytes; a shorter file cannot contain a schema

// Both forms are read as a stream of messages. A file has a magic number before the stream and a footer after it.
// Source: https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
class ArrowReader final : public RowReader {
 public:
  explicit ArrowReader(const fs::path& path)
      : file_(path), name_(std::make_shared<std::string>(path.string())), rest_(file_.text()), cells_(dictionaries_) {
    if (rest_.starts_with(arrow::kFeatherV1Magic))
      throw Error(*name_, "is in Feather version 1", "write it as version 2");
    if (rest_.starts_with(arrow::kMagic)) {
      if (rest_.size() < kSmallestFile || !rest_.ends_with(arrow::kMagic))
        throw Error(*name_, "the Arrow file ends too early", kFetchAgain);
      rest_.remove_prefix(arrow::kPaddedMagicBytes);
    }
    guarded([&] {
      if (!read_message() || !has_schema_)
        throw Error(*name_, "is not an Arrow file or stream: it does not begin with a schema");
    });
  }

  bool next(Json& row, RowPlace& place, BadRows& bad) override {
    while (true) {
      while (next_ == batch_.length) {
        bool more = false;
        guarded([&] { more = read_message(); });
        if (!more) return false;
      }
      place = {name_, "row", ++number_};
      std::string fault;
      guarded([&] { row = cells_.row(batch_, next_, fault); });
      ++next_;
      if (fault.empty() && row.empty()) fault = "no columns";
      if (fault.empty()) return true;
      bad.add(place, fault);
    }
  }

 private:
  template <class Body>
  void guarded(const Body& body) const {
    try {
      body();
    } catch (const DamagedArrow& damage) {
      throw Error(*name_,
                  text_of("damaged Arrow data", number_ > 0 ? text_of(" at row ", number_) : "", ": ", damage.what),
                  kFetchAgain);
    }
  }

  [[nodiscard]] std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) throw DamagedArrow{"it ends too early"};
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  // Reads the next message; returns false at the end.
  bool read_message() {
    if (rest_.empty()) return false;
    const auto next_number = [&] { return FlatTable::load<std::int32_t>(take(sizeof(std::int32_t)), 0); };
    std::int32_t size = next_number();
    if (size == arrow::kContinuation) size = next_number();
    if (size == arrow::kEndOfStream) {
      rest_ = {};
      return false;
    }
    if (size < 0) throw DamagedArrow{"damaged metadata"};
    const FlatTable message = FlatTable::root(take(static_cast<std::uint64_t>(size)));
    const auto body_size = message.number<std::int64_t>(arrow::Message::kBodyLength);
    if (body_size < 0) throw DamagedArrow{"damaged metadata"};
    const std::string_view body = take(static_cast<std::uint64_t>(body_size));
    const FlatTable header = message.needed_table(arrow::Message::kHeader);
    switch (message.number<arrow::MessageHeader>(arrow::Message::kHeaderType)) {
      case arrow::MessageHeader::kSchema:
        if (has_schema_) throw DamagedArrow{"it has two schemas"};
        fields_ = read_arrow_schema(header, *name_);
        find_dictionaries(fields_);
        has_schema_ = true;
        return true;
      case arrow::MessageHeader::kDictionaryBatch:
        read_dictionary(header, body);
        return true;
      case arrow::MessageHeader::kRecordBatch:
        batch_ = read_arrow_batch(fields_, header, body);
        if (batch_.columns.empty()) batch_.length = 0;
        next_ = 0;
        return true;
      default:
        throw DamagedArrow{"it contains a message of an unknown kind"};
    }
  }

  void find_dictionaries(const std::vector<ArrowField>& fields) {
    for (const ArrowField& field : fields) {
      if (field.dictionary) {
        ArrowField values = field;
        values.dictionary.reset();
        dictionary_fields_[*field.dictionary] = {std::move(values)};
      }
      find_dictionaries(field.fields);
    }
  }

  void read_dictionary(const FlatTable& header, std::string_view body) {
    const auto id = header.number<std::int64_t>(arrow::DictionaryBatch::kId);
    const auto fields = dictionary_fields_.find(id);
    if (fields == dictionary_fields_.end()) throw DamagedArrow{"no column uses a dictionary"};
    const bool is_more = header.number<std::uint8_t>(arrow::DictionaryBatch::kIsDelta) != 0;
    std::vector<ArrowBatch>& parts = dictionaries_[id];
    ArrowBatch part = read_arrow_batch(fields->second, header.needed_table(arrow::DictionaryBatch::kData), body);
    if (!is_more) parts.clear();
    parts.push_back(std::move(part));
  }

  MappedFile file_;
  std::shared_ptr<const std::string> name_;
  std::string_view rest_;
  bool has_schema_ = false;
  std::vector<ArrowField> fields_;
  std::map<std::int64_t, std::vector<ArrowField>> dictionary_fields_;  // one field for each dictionary id
  ArrowDictionaries dictionaries_;
  ArrowCells cells_;
  ArrowBatch batch_;
  std::int64_t next_ = 0;  // next row of batch_
  std::int64_t number_ = 0;
};

}  // namespace

std::unique_ptr<RowReader> make_arrow_reader(const fs::path& path) { return std::make_unique<ArrowReader>(path); }

}  // namespace hone
