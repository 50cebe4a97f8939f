// Sources: data files that are read row by row. A row is a JSON object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace hone {

// Location of a row, for messages.
struct RowPlace {
  std::shared_ptr<const std::string> file;
  std::string_view unit = "line";  // what `number` counts: "line" or "row"
  std::int64_t number = 0;         // from 1
};

// Counts unusable rows. It remembers the first row of each of the first kShown reasons.
class BadRows {
 public:
  void add(const RowPlace& place, std::string_view reason);
  [[nodiscard]] std::int64_t count() const { return count_; }
  // One line for each remembered reason: "data.jsonl line 3: not valid JSON (column 5)".
  [[nodiscard]] std::vector<std::string> first() const;
  // One line that says how many of `rows` were left out, and why; "" if none.
  [[nodiscard]] std::string describe(std::int64_t rows) const;
  // Serialization: read(written()) equals the original.
  [[nodiscard]] Json written() const;
  [[nodiscard]] static BadRows read(const Json& json);  // throws nlohmann's exceptions

  static constexpr std::size_t kShown = 5;

 private:
  struct Fault {
    std::string place;  // of the first such row
    std::string reason;
    std::int64_t count = 0;
  };

  std::int64_t count_ = 0;
  std::vector<Fault> faults_;
};

// Unit of a plain text file that becomes one document (`sample_by` of Hugging Face's text loader).
enum class SampleBy { kDocument, kParagraph, kLine };
[[nodiscard]] SampleBy sample_by_from_name(std::string_view name);  // throws Error

struct SourceOptions {
  SampleBy sample_by = SampleBy::kDocument;
  std::string split = "train";  // train, validation or test; selects the files of a folder by their names
};

// Selects the rows whose column `key_column` equals the text `key`, and of these rows the named columns.
struct RowFilter {
  std::string key_column;
  std::string key;
  std::vector<std::string> columns;
};

// Reads one file, row by row. Each format has an implementation.
class RowReader {
 public:
  virtual ~RowReader() = default;
  // Announces a filter before the first row is read. The reader may then skip rows and columns that do not pass.
  virtual void set_filter(const RowFilter& filter) { (void)filter; }
  // Reads the next usable row and its place; returns false at the end. Unusable rows are added to `bad`. Throws Error
  // if the file as a whole cannot be read.
  [[nodiscard]] virtual bool next(Json& row, RowPlace& place, BadRows& bad) = 0;
};

// Files, and the rows and columns of them that belong to a source.
struct SourcePart {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> columns;  // empty: all; a row that lacks one gets null for it
  std::vector<bool> kept;            // [rows of the files]; empty: all
};

// A readable dataset: files that exist and have known formats, with a selection of rows and columns.
class Source {
 public:
  // Opens a local file, folder or pattern (data/data_files.h describes how the split selects files). Throws Error.
  Source(const std::filesystem::path& path, const SourceOptions& options);
  // Opens selected files. `order`: see order(). Throws Error if a format is unknown.
  Source(std::string name, std::vector<SourcePart> parts, const SourceOptions& options,
         std::vector<std::uint32_t> order = {});

  [[nodiscard]] const std::string& name() const { return name_; }  // the path as given
  [[nodiscard]] const std::vector<SourcePart>& parts() const { return parts_; }
  [[nodiscard]] const SourceOptions& options() const { return options_; }
  // Order of the rows, as numbers in the sequence of for_each_row, from 0; empty: that sequence itself.
  [[nodiscard]] std::span<const std::uint32_t> order() const { return order_; }
  // Calls `visit` for every usable row, in file order. Throws Error.
  void for_each_row(BadRows& bad, const std::function<void(Json& row, const RowPlace& place)>& visit) const;
  // Calls `visit` for the rows that pass the filter; readers may skip the others without parsing them. Requires a
  // source without a selection of rows. Throws Error, also if a row lacks one of the columns.
  void for_each_matching_row(const RowFilter& filter, BadRows& bad,
                             const std::function<void(Json& row, const RowPlace& place)>& visit) const;

 private:
  std::string name_;
  std::vector<SourcePart> parts_;
  SourceOptions options_;
  std::vector<std::uint32_t> order_;
};

}  // namespace hone
