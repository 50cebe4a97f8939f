#include "data/source.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "data/data_files.h"
#include "data/readers.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

FileFormat readable_format(const fs::path& path) {
  if (const auto format = format_of(path)) return *format;
  throw Error(path.string(), text_of("'", path.extension().string(), "' is not a known format of data"),
              "give " + known_formats());
}

std::unique_ptr<RowReader> reader_of(const fs::path& path, const SourceOptions& options) {
  const FileFormat format = readable_format(path);
  switch (format.format) {
    case DataFormat::kJsonl:
      break;
    case DataFormat::kJson:
      return make_json_reader(path, format.compression);
    case DataFormat::kCsv:
      return make_csv_reader(path, format.compression, ',');
    case DataFormat::kTsv:
      return make_csv_reader(path, format.compression, '\t');
    case DataFormat::kText:
      return make_text_reader(path, format.compression, options.sample_by);
    case DataFormat::kParquet:
      return make_parquet_reader(path);
    case DataFormat::kArrow:
      return make_arrow_reader(path);
  }
  return make_jsonl_reader(path, format.compression);
}

Json with_columns(Json& row, const std::vector<std::string>& columns) {
  Json chosen = Json::object();
  for (const std::string& column : columns) {
    const auto found = row.find(column);
    chosen[column] = found == row.end() ? Json(nullptr) : std::move(*found);
  }
  return chosen;
}

void check_columns(const Json& row, const RowFilter& filter, const RowPlace& place) {
  const auto check = [&](const std::string& column) {
    if (!row.contains(column)) throw Error(*place.file, text_of("has no column '", column, "'"));
  };
  check(filter.key_column);
  std::ranges::for_each(filter.columns, check);
}

}  // namespace

void BadRows::add(const RowPlace& place, std::string_view reason) {
  ++count_;
  const auto known = std::ranges::find(faults_, reason, &Fault::reason);
  if (known != faults_.end()) {
    ++known->count;
  } else if (faults_.size() < kShown) {
    faults_.push_back({text_of(*place.file, " ", place.unit, " ", place.number), std::string(reason), 1});
  }
}

std::vector<std::string> BadRows::first() const {
  std::vector<std::string> lines;
  lines.reserve(faults_.size());
  for (const Fault& fault : faults_) lines.push_back(text_of(fault.place, ": ", fault.reason));
  return lines;
}

std::string BadRows::describe(std::int64_t rows) const {
  if (count_ == 0) return "";
  std::string text = text_of(format_count(count_), " of ", format_count(rows), " rows left out");
  std::int64_t others = count_;
  // One clause per remembered reason, then the number of the remaining rows.
  for (const Fault& fault : faults_) {
    text += text_of(others == count_ ? ": " : "; ", fault.place);
    if (fault.count > 1) text += text_of(" and ", format_count(fault.count - 1), " more");
    text += ": " + fault.reason;
    others -= fault.count;
  }
  if (others > 0) text += text_of("; and ", format_count(others), " for other reasons");
  return text;
}

Json BadRows::written() const {
  Json faults = Json::array();
  for (const Fault& fault : faults_) faults.push_back({fault.place, fault.reason, fault.count});
  return {{"count", count_}, {"faults", faults}};
}

BadRows BadRows::read(const Json& json) {
  BadRows rows;
  rows.count_ = json.at("count").get<std::int64_t>();
  for (const Json& fault : json.at("faults")) {
    rows.faults_.push_back(
        {fault.at(0).get<std::string>(), fault.at(1).get<std::string>(), fault.at(2).get<std::int64_t>()});
  }
  return rows;
}

SampleBy sample_by_from_name(std::string_view name) {
  if (name == "document") return SampleBy::kDocument;
  if (name == "paragraph") return SampleBy::kParagraph;
  if (name == "line") return SampleBy::kLine;
  throw Error("sample_by", text_of("'", name, "' is not known"), "use document, paragraph or line");
}

Source::Source(const fs::path& path, const SourceOptions& options)
    : Source(path.string(), {{.files = local_data_files(path.string(), {}, options.split), .columns = {}, .kept = {}}},
             options) {}

Source::Source(std::string name, std::vector<SourcePart> parts, const SourceOptions& options,
               std::vector<std::uint32_t> order)
    : name_(std::move(name)), parts_(std::move(parts)), options_(options), order_(std::move(order)) {
  for (const SourcePart& part : parts_) {
    for (const fs::path& file : part.files) (void)readable_format(file);
  }
}

void Source::for_each_row(BadRows& bad, const std::function<void(Json&, const RowPlace&)>& visit) const {
  for (const SourcePart& part : parts_) {
    std::size_t number = 0;
    for (const fs::path& file : part.files) {
      const std::unique_ptr<RowReader> reader = reader_of(file, options_);
      Json row;
      RowPlace place;
      while (reader->next(row, place, bad)) {
        const std::size_t at = number++;
        if (!part.kept.empty() && (at >= part.kept.size() || !part.kept[at])) continue;
        if (!part.columns.empty()) row = with_columns(row, part.columns);
        visit(row, place);
      }
    }
  }
}

void Source::for_each_matching_row(const RowFilter& filter, BadRows& bad,
                                   const std::function<void(Json&, const RowPlace&)>& visit) const {
  for (const SourcePart& part : parts_) {
    HONE_ASSERT(part.kept.empty(), name_, ": rows are chosen already");
    for (const fs::path& file : part.files) {
      const std::unique_ptr<RowReader> reader = reader_of(file, options_);
      reader->set_filter(filter);
      Json row;
      RowPlace place;
      while (reader->next(row, place, bad)) {
        check_columns(row, filter, place);
        if (const Json& key = row[filter.key_column]; key == filter.key) visit(row, place);
      }
    }
  }
}

}  // namespace hone
