// Recognizes the format and the compression of a data file by its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace hone {

// Advice for damaged files in error messages.
inline constexpr std::string_view kFetchAgain = "is it whole? fetch it again";

enum class DataFormat : std::uint8_t { kJsonl, kJson, kCsv, kTsv, kText, kParquet, kArrow };
enum class Compression : std::uint8_t { kNone, kGzip, kZstd };

struct FileFormat {
  DataFormat format = DataFormat::kJsonl;
  Compression compression = Compression::kNone;
};

// Reads the format from the extensions: "a.jsonl", "b.csv.gz". Returns nullopt if they are unknown, or if a file of a
// format with built-in compression (Parquet, Arrow) is compressed as a whole.
[[nodiscard]] std::optional<FileFormat> format_of(const std::filesystem::path& path);
// List of extensions (".jsonl, .json, ...") for messages.
[[nodiscard]] std::string known_formats();

}  // namespace hone
