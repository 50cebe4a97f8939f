// What a file of data is, by its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace hone {

inline constexpr std::string_view kFetchAgain = "is it whole? fetch it again";  // what to do about a damaged file

enum class DataFormat : std::uint8_t { jsonl, json, csv, tsv, text, parquet, arrow };
enum class Compression : std::uint8_t { none, gzip, zstd };

struct FileFormat {
  DataFormat format = DataFormat::jsonl;
  Compression compression = Compression::none;
};

// From the extensions: "a.jsonl", "b.csv.gz". nullopt where they are not known, or where a format that has its own
// compression (Parquet, Arrow) is compressed from outside.
[[nodiscard]] std::optional<FileFormat> format_of(const std::filesystem::path& path);
// ".jsonl, .json, ..." for messages.
[[nodiscard]] std::string known_formats();

}  // namespace hone
