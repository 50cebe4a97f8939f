// Reads CSV as defined by RFC 4180: a header, then records; fields in double quotes may contain separators, line breaks
// and doubled quotes.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "core/unicode.h"
#include "data/chunk_stream.h"
#include "data/readers.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

class CsvReader final : public RowReader {
 public:
  CsvReader(const fs::path& path, Compression compression, char separator)
      : chunks_(open_text_chunks(path, compression)),
        name_(std::make_shared<std::string>(path.string())),
        separator_(separator) {
    do {
      if (!take_record()) throw Error(*name_, "is empty", "its first line must name the columns");
    } while (is_blank());
    if (!fault_.empty()) throw Error(text_of(*name_, " line ", record_line_), fault_);
    columns_ = std::move(fields_);
    name_columns();
  }

  bool next(Json& row, RowPlace& place, BadRows& bad) override {
    while (take_record()) {
      place = {name_, "line", record_line_};
      if (is_blank()) continue;
      if (fault_.empty()) check_fields();
      if (!fault_.empty()) {
        bad.add(place, fault_);
        continue;
      }
      row = Json::object();
      auto& items = row.get_ref<Json::object_t&>();
      for (std::size_t i = 0; i < columns_.size(); ++i) items.emplace_back(columns_[i], std::move(fields_[i]));
      return true;
    }
    return false;
  }

 private:
  // Returns true for an empty line, which pandas skips too. In a file of one column, a quoted empty field is not blank.
  [[nodiscard]] bool is_blank() const {
    return fields_.size() == 1 && fields_[0].empty() && !was_quoted_ && fault_.empty();
  }

  // A column without a name (pandas writes its index so) gets the name that pandas gives it when reading.
  void name_columns() {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].empty()) columns_[i] = text_of("Unnamed: ", i);
      if (!is_valid_utf8(columns_[i])) throw Error(*name_, "the header is not valid UTF-8");
    }
    std::vector<std::string> sorted = columns_;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) throw Error(*name_, text_of("the header names the column '", *twice, "' twice"));
  }

  void check_fields() {
    if (fields_.size() != columns_.size()) {
      fault_ =
          text_of(fields_.size(), fields_.size() == 1 ? " field" : " fields", ", the header names ", columns_.size());
    }
    for (std::size_t i = 0; i < fields_.size() && fault_.empty(); ++i) {
      if (!is_valid_utf8(fields_[i])) fault_ = text_of("column '", columns_[i], "' is not valid UTF-8");
    }
  }

  bool peek(char& c) {
    if (rest_.empty()) rest_ = chunks_->next();
    if (rest_.empty()) return false;
    c = rest_.front();
    return true;
  }
  void skip() {
    line_ += rest_.front() == '\n' ? 1 : 0;
    rest_.remove_prefix(1);
  }
  void append(char c) {
    if (++record_bytes_ > kLongestRow) {
      throw Error(text_of(*name_, " line ", record_line_), text_of("a row is longer than ", format_bytes(kLongestRow)),
                  "is a quote missing?");
    }
    fields_.back() += c;
  }

  // Reads the next record into fields_ and describes its fault, if any, in fault_. Returns false at the end of the
  // text.
  bool take_record() {
    fault_.clear();
    was_quoted_ = false;
    record_bytes_ = 0;
    record_line_ = line_;
    char c = 0;
    if (!peek(c)) return false;
    fields_.assign(1, {});
    while (peek(c)) {
      if (c == '"' && fields_.back().empty()) {
        take_quoted();
        continue;
      }
      skip();
      if (c == '\n') return true;
      if (c == '\r') {
        if (peek(c) && c == '\n') skip();
        return true;
      }
      if (c == separator_) {
        fields_.emplace_back();
        if (fields_.size() > kMostColumns) throw Error(*name_, text_of("more than ", kMostColumns, " columns"));
      } else {
        append(c);
      }
    }
    return true;
  }

  void take_quoted() {
    was_quoted_ = true;
    const std::int64_t opened = line_;
    skip();
    char c = 0;
    while (peek(c)) {
      skip();
      if (c != '"') {
        append(c);
        continue;
      }
      if (!peek(c) || c == separator_ || c == '\n' || c == '\r') return;
      if (c != '"') {
        if (fault_.empty()) fault_ = "text after the closing quote of a field (a quote inside one is written twice)";
        return;
      }
      append(c);
      skip();
    }
    fault_ = text_of("the quote opened in line ", opened, " is not closed");
  }

  static constexpr std::size_t kMostColumns = 100'000;

  std::unique_ptr<ChunkStream> chunks_;
  std::shared_ptr<const std::string> name_;
  char separator_;
  std::string_view rest_;
  std::vector<std::string> columns_;
  std::vector<std::string> fields_;  // fields of the current record
  std::string fault_;
  bool was_quoted_ = false;
  std::size_t record_bytes_ = 0;
  std::int64_t record_line_ = 1;
  std::int64_t line_ = 1;
};

}  // namespace

std::unique_ptr<RowReader> make_csv_reader(const fs::path& path, Compression compression, char separator) {
  return std::make_unique<CsvReader>(path, compression, separator);
}

}  // namespace hone
