#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"
#include "data/readers.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

// "" where the row is an object with columns.
std::string_view fault_of(const Json& row) {
  if (!row.is_object()) return "not a JSON object";
  return row.empty() ? "an empty object" : "";
}

std::string_view without_byte_order_mark(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
}

class JsonLines final : public RowReader {
 public:
  explicit JsonLines(const fs::path& path)
      : file_(path), name_(std::make_shared<std::string>(path.string())), rest_(without_byte_order_mark(file_.text())) {
    rest_ = rest_.substr(0, rest_.find_last_not_of(" \t\r\n") + 1);
  }

  bool next(Json& row, RowPlace& place, BadRows& bad) override {
    while (!rest_.empty()) {
      const std::size_t end = std::min(rest_.find('\n'), rest_.size());
      const std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      place = {name_, "line", ++number_};
      const std::string fault = parse(line, row);
      if (fault.empty()) return true;
      bad.add(place, fault);
    }
    return false;
  }

 private:
  static std::string parse(std::string_view line, Json& row) {
    if (trim(line).empty()) return "an empty line";
    if (is_too_deep_json(line)) return text_of("nested deeper than ", kDeepestJson);
    try {
      row = Json::parse(line);
    } catch (const nlohmann::json::parse_error& error) {
      return text_of("not valid JSON (column ", error.byte, ")");
    } catch (const nlohmann::json::exception&) {
      return "not valid JSON (a number is out of range)";
    }
    return std::string(fault_of(row));
  }

  MappedFile file_;
  std::shared_ptr<const std::string> name_;
  std::string_view rest_;
  std::int64_t number_ = 0;
};

class JsonArray final : public RowReader {
 public:
  explicit JsonArray(const fs::path& path) : name_(std::make_shared<std::string>(path.string())) {
    const MappedFile file(path);
    const std::string_view text = without_byte_order_mark(file.text());
    rows_ = parse_json(text, *name_);
  }

  bool next(Json& row, RowPlace& place, BadRows& bad) override {
    while (index_ < rows_.size()) {
      row = std::move(rows_[index_++]);
      place = {name_, "row", static_cast<std::int64_t>(index_)};
      const std::string_view fault = fault_of(row);
      if (fault.empty()) return true;
      bad.add(place, fault);
    }
    return false;
  }

 private:
  std::shared_ptr<const std::string> name_;
  Json rows_;
  std::size_t index_ = 0;
};

}  // namespace

std::unique_ptr<RowReader> make_jsonl_reader(const fs::path& path) { return std::make_unique<JsonLines>(path); }

std::unique_ptr<RowReader> make_json_reader(const fs::path& path) {
  bool is_array = false;
  {
    const MappedFile file(path);
    is_array = trim(without_byte_order_mark(file.text())).starts_with('[');
  }
  if (is_array) return std::make_unique<JsonArray>(path);
  return make_jsonl_reader(path);
}

}  // namespace hone
