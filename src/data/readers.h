// The readers of the formats, for source.cpp. A new format is a reader here and a line in reader_of.
#pragma once

#include <filesystem>
#include <memory>

#include "data/file_format.h"
#include "data/source.h"

namespace hone {

// One JSON object a line.
[[nodiscard]] std::unique_ptr<RowReader> make_jsonl_reader(const std::filesystem::path& path,
                                                           Compression compression = Compression::none);
// An array of objects, or one object a line.
[[nodiscard]] std::unique_ptr<RowReader> make_json_reader(const std::filesystem::path& path,
                                                          Compression compression = Compression::none);
// A header and records; every column is text.
[[nodiscard]] std::unique_ptr<RowReader> make_csv_reader(const std::filesystem::path& path,
                                                         Compression compression = Compression::none,
                                                         char separator = ',');
// {"text": ...} for every document.
[[nodiscard]] std::unique_ptr<RowReader> make_text_reader(const std::filesystem::path& path, Compression compression,
                                                          SampleBy sample_by);
// In both a value that JSON has no type for is text (dates, times, decimals) or binary; NaN and infinities are null.
[[nodiscard]] std::unique_ptr<RowReader> make_parquet_reader(const std::filesystem::path& path);
// Arrow's IPC format, as a file or as a stream.
[[nodiscard]] std::unique_ptr<RowReader> make_arrow_reader(const std::filesystem::path& path);

}  // namespace hone
