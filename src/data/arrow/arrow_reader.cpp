#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "data/arrow/arrow_batch.h"
#include "data/file_format.h"
#include "data/readers.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMagic = "ARROW1";

// Both forms are read as a stream of messages. A file has a magic number before the stream and a footer after it.
// Source: https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
class ArrowReader final : public RowReader {
 public:
  explicit ArrowReader(const fs::path& path)
      : file_(path), name_(std::make_shared<std::string>(path.string())), rest_(file_.text()), cells_(dictionaries_) {
    if (rest_.starts_with("FEA1")) throw Error(*name_, "is in Feather version 1", "write it as version 2");
    if (rest_.starts_with(kMagic)) {
      if (rest_.size() < 24 || !rest_.ends_with(kMagic))
        throw Error(*name_, "the Arrow file ends too early", kFetchAgain);
      rest_.remove_prefix(8);
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
    auto size = FlatTable::load<std::int32_t>(take(4), 0);
    // Marker that precedes the size since version 0.15.
    if (size == -1) size = FlatTable::load<std::int32_t>(take(4), 0);
    if (size == 0) {
      rest_ = {};
      return false;
    }
    if (size < 0) throw DamagedArrow{"damaged metadata"};
    // Fields of Message (Message.fbs): 1 header type (1 Schema, 2 DictionaryBatch, 3 RecordBatch), 2 header, 3 body
    // size.
    const FlatTable message = FlatTable::root(take(static_cast<std::uint64_t>(size)));
    const auto body_size = message.number<std::int64_t>(3);
    if (body_size < 0) throw DamagedArrow{"damaged metadata"};
    const std::string_view body = take(static_cast<std::uint64_t>(body_size));
    const FlatTable header = message.needed_table(2);
    switch (message.number<std::uint8_t>(1)) {
      case 1:
        if (has_schema_) throw DamagedArrow{"it has two schemas"};
        fields_ = read_arrow_schema(header, *name_);
        find_dictionaries(fields_);
        has_schema_ = true;
        return true;
      case 2:
        read_dictionary(header, body);
        return true;
      case 3:
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
    const auto id = header.number<std::int64_t>(0);
    const auto fields = dictionary_fields_.find(id);
    if (fields == dictionary_fields_.end()) throw DamagedArrow{"no column uses a dictionary"};
    const bool is_more = header.number<std::uint8_t>(2) != 0;
    std::vector<ArrowBatch>& parts = dictionaries_[id];
    ArrowBatch part = read_arrow_batch(fields->second, header.needed_table(1), body);
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
