// Constructors of the readers of all formats, used by source.cpp. A new format needs a reader here and a case in
// reader_of.
#pragma once

#include <filesystem>
#include <memory>

#include "data/file_format.h"
#include "data/source.h"

namespace hone {

// Reads one JSON object per line.
[[nodiscard]] std::unique_ptr<RowReader> make_jsonl_reader(const std::filesystem::path& path,
                                                           Compression compression = Compression::kNone);
// Reads a JSON array of objects, or one object per line.
[[nodiscard]] std::unique_ptr<RowReader> make_json_reader(const std::filesystem::path& path,
                                                          Compression compression = Compression::kNone);
// Reads a header and records; every column is text.
[[nodiscard]] std::unique_ptr<RowReader> make_csv_reader(const std::filesystem::path& path,
                                                         Compression compression = Compression::kNone,
                                                         char separator = ',');
// Yields {"text": ...} for every document.
[[nodiscard]] std::unique_ptr<RowReader> make_text_reader(const std::filesystem::path& path, Compression compression,
                                                          SampleBy sample_by);
// Parquet and Arrow: values without a JSON type become text (dates, times, decimals) or binary; NaN and infinities
// become null.
[[nodiscard]] std::unique_ptr<RowReader> make_parquet_reader(const std::filesystem::path& path);
// Reads Arrow's IPC format, either a file or a stream.
[[nodiscard]] std::unique_ptr<RowReader> make_arrow_reader(const std::filesystem::path& path);

}  // namespace hone
