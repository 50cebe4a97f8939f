// The readers of the formats, for source.cpp. A new format is a reader here and a line in reader_of.
#pragma once

#include <filesystem>
#include <memory>

#include "data/source.h"

namespace hone {

// One JSON object a line (.jsonl, .ndjson).
[[nodiscard]] std::unique_ptr<RowReader> make_jsonl_reader(const std::filesystem::path& path);
// An array of objects, or one object a line (.json).
[[nodiscard]] std::unique_ptr<RowReader> make_json_reader(const std::filesystem::path& path);
// {"text": ...} for every document (.txt, .text).
[[nodiscard]] std::unique_ptr<RowReader> make_text_reader(const std::filesystem::path& path, SampleBy sample_by);

}  // namespace hone
