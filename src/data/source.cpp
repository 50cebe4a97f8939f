#include "data/source.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/strings.h"
#include "data/readers.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

std::unique_ptr<RowReader> reader_of(const fs::path& path, const SourceOptions& options) {
  const FileFormat format = format_of(path).value();
  switch (format.format) {
    case DataFormat::jsonl:
      break;
    case DataFormat::json:
      return make_json_reader(path, format.compression);
    case DataFormat::csv:
      return make_csv_reader(path, format.compression, ',');
    case DataFormat::tsv:
      return make_csv_reader(path, format.compression, '\t');
    case DataFormat::text:
      return make_text_reader(path, format.compression, options.sample_by);
    case DataFormat::parquet:
      return make_parquet_reader(path);
    case DataFormat::arrow:
      return make_arrow_reader(path);
  }
  return make_jsonl_reader(path, format.compression);
}

void require_readable(const fs::path& path) {
  if (format_of(path)) return;
  throw Error(path.string(), text_of("'", path.extension().string(), "' is not a known format of data"),
              "give " + known_formats());
}

// What libraries keep beside data; none of it is data.
bool is_description(const std::string& name) {
  constexpr std::array<std::string_view, 4> kNames = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                                                      "state.json"};
  return std::ranges::find(kNames, name) != kNames.end() || (name.starts_with("cache-") && name.ends_with(".arrow"));
}

// The split that a word of `name` means, as Hugging Face's loader looks for it between separators.
std::optional<std::string_view> split_named_in(std::string_view name) {
  constexpr std::string_view kSeparators = "-._ 0123456789/";
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kWords = {{{"train", "train"},
                                                                                     {"training", "train"},
                                                                                     {"validation", "validation"},
                                                                                     {"valid", "validation"},
                                                                                     {"dev", "validation"},
                                                                                     {"val", "validation"},
                                                                                     {"test", "test"},
                                                                                     {"testing", "test"},
                                                                                     {"eval", "test"},
                                                                                     {"evaluation", "test"}}};
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of(kSeparators), name.size());
    for (const auto& [word, split] : kWords) {
      if (name.substr(0, end) == word) return split;
    }
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return std::nullopt;
}

std::vector<fs::path> data_files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string file_name = it->path().filename().string();
    if (file_name.starts_with('.')) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    const bool is_data = format_of(it->path()).has_value() && !is_description(file_name);
    if (is_data && it->is_regular_file()) files.push_back(it->path());
  }
  if (error) throw Error(folder.string(), text_of("cannot list the folder: ", error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

using Split = std::pair<std::string, std::vector<fs::path>>;

// The files by the splits that their names mean; empty where no name means any.
std::vector<Split> named_splits(const fs::path& folder, const std::vector<fs::path>& files) {
  std::vector<Split> splits;
  for (const bool by_file_name : {true, false}) {
    for (const fs::path& file : files) {
      const std::string text =
          by_file_name ? file.filename().string() : file.parent_path().lexically_relative(folder).generic_string();
      const auto named = split_named_in(text);
      if (!named) continue;
      auto split = std::ranges::find(splits, *named, &Split::first);
      if (split == splits.end()) split = splits.insert(splits.end(), {std::string(*named), {}});
      split->second.push_back(file);
    }
    if (!splits.empty()) break;
  }
  return splits;
}

// The files of `split`; all are train where no name says otherwise.
std::vector<fs::path> files_of_split(const fs::path& folder, const std::vector<fs::path>& files,
                                     const std::string& split) {
  std::vector<Split> splits = named_splits(folder, files);
  if (splits.empty()) splits.emplace_back("train", files);
  std::vector<std::string> names;
  for (Split& known : splits) {
    if (known.first == split) return std::move(known.second);
    names.push_back(known.first);
  }
  throw Error(folder.string(), text_of("has no split '", split, "'; it has: ", join(names, ", ")));
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
  for (const Fault& fault : faults_) {
    text += text_of(others == count_ ? ": " : "; ", fault.place);
    if (fault.count > 1) text += text_of(" and ", format_count(fault.count - 1), " more");
    text += ": " + fault.reason;
    others -= fault.count;
  }
  if (others > 0) text += text_of("; and ", format_count(others), " for other reasons");
  return text;
}

bool names_splits(const fs::path& path) {
  return fs::is_directory(path) && !named_splits(path, data_files_below(path)).empty();
}

SampleBy sample_by_from_name(std::string_view name) {
  if (name == "document") return SampleBy::document;
  if (name == "paragraph") return SampleBy::paragraph;
  if (name == "line") return SampleBy::line;
  throw Error("sample_by", text_of("'", name, "' is not known"), "use document, paragraph or line");
}

Source::Source(const fs::path& path, const SourceOptions& options) : name_(path.string()), options_(options) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw Error(name_, "no such file or folder",
                text_of("give the path of a ", known_formats(), " file, or of a folder of them"));
  }
  if (!fs::is_directory(status)) {
    if (options.split != "train") throw Error(name_, text_of("a single file has no split '", options.split, "'"));
    files_ = {path};
  } else {
    const std::vector<fs::path> files = data_files_below(path);
    if (files.empty())
      throw Error(name_, "the folder holds no data", text_of("put ", known_formats(), " files into it"));
    files_ = files_of_split(path, files, options.split);
  }
  for (const fs::path& file : files_) require_readable(file);
}

void Source::for_each_row(BadRows& bad, const std::function<void(Json&, const RowPlace&)>& visit) const {
  for (const fs::path& file : files_) {
    const std::unique_ptr<RowReader> reader = reader_of(file, options_);
    Json row;
    RowPlace place;
    while (reader->next(row, place, bad)) visit(row, place);
  }
}

}  // namespace hone
