// Sources: files of rows. A row is a JSON object.
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

// Where a row stands, for messages.
struct RowPlace {
  std::shared_ptr<const std::string> file;
  std::string_view unit = "line";  // what `number` counts: "line" or "row"
  std::int64_t number = 0;         // from 1
};

// The rows that could not be used: all counted, the first of each of the first few reasons named.
class BadRows {
 public:
  void add(const RowPlace& place, std::string_view reason);
  [[nodiscard]] std::int64_t count() const { return count_; }
  // "data.jsonl line 3: not valid JSON (column 5)", one a reason, at most kShown.
  [[nodiscard]] std::vector<std::string> first() const;
  // One line: how many of `rows` were left out, and why; "" where there is none.
  [[nodiscard]] std::string describe(std::int64_t rows) const;
  // And back: read(written()) is equal.
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

// What is one document in a plain text file (`sample_by` of Hugging Face's text loader).
enum class SampleBy { document, paragraph, line };
[[nodiscard]] SampleBy sample_by_from_name(std::string_view name);  // throws Error

struct SourceOptions {
  SampleBy sample_by = SampleBy::document;
  std::string split = "train";  // train, validation or test: of a folder's files, by their names
};

// Of rows those whose column `key_column` is the text `key`, and of these the named columns.
struct RowFilter {
  std::string key_column;
  std::string key;
  std::vector<std::string> columns;
};

// Reads one file, row by row. One implementation a format.
class RowReader {
 public:
  virtual ~RowReader() = default;
  // Said before the first row is read: what does not pass the filter will not be missed.
  virtual void wants_only(const RowFilter& filter) { (void)filter; }
  // The next usable row and its place; false at the end. Unusable rows go to `bad`. Throws Error where the file as a
  // whole cannot be read.
  [[nodiscard]] virtual bool next(Json& row, RowPlace& place, BadRows& bad) = 0;
};

// Files, and which of their rows and columns belong to a source.
struct SourcePart {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> columns;  // empty: all; a row that lacks one has a null there
  std::vector<bool> kept;            // [rows of the files]; empty: all
};

// A file, a folder of files, or several of them; known to exist and to be of formats that can be read.
class Source {
 public:
  // A local file, folder or pattern (data/data_files.h says which files of a folder are the split). Throws Error.
  Source(const std::filesystem::path& path, const SourceOptions& options);
  // `order`: see order(). Throws Error.
  Source(std::string name, std::vector<SourcePart> parts, const SourceOptions& options,
         std::vector<std::uint32_t> order = {});

  [[nodiscard]] const std::string& name() const { return name_; }  // the path as given
  [[nodiscard]] const std::vector<SourcePart>& parts() const { return parts_; }
  [[nodiscard]] const SourceOptions& options() const { return options_; }
  // The order of the rows, by the number in which for_each_row visits them, from 0; empty: as they are visited.
  [[nodiscard]] std::span<const std::uint32_t> order() const { return order_; }
  // Calls visit for every usable row, as the files have them. Throws Error.
  void for_each_row(BadRows& bad, const std::function<void(Json& row, const RowPlace& place)>& visit) const;
  // Of whole files alone, and only of the rows that the filter names; others may be passed over unread. Throws Error
  // also where a file has no such column.
  void for_each_row_of(const RowFilter& filter, BadRows& bad,
                       const std::function<void(Json& row, const RowPlace& place)>& visit) const;

 private:
  std::string name_;
  std::vector<SourcePart> parts_;
  SourceOptions options_;
  std::vector<std::uint32_t> order_;
};

}  // namespace hone
