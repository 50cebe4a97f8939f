#include "data/file_format.h"

#include <array>
#include <string_view>
#include <utility>

namespace hone {
namespace {

constexpr std::array<std::pair<std::string_view, DataFormat>, 10> kFormats = {{{".jsonl", DataFormat::kJsonl},
                                                                               {".json", DataFormat::kJson},
                                                                               {".csv", DataFormat::kCsv},
                                                                               {".tsv", DataFormat::kTsv},
                                                                               {".txt", DataFormat::kText},
                                                                               {".parquet", DataFormat::kParquet},
                                                                               {".arrow", DataFormat::kArrow},
                                                                               {".ndjson", DataFormat::kJsonl},
                                                                               {".text", DataFormat::kText},
                                                                               {".feather", DataFormat::kArrow}}};

Compression compression_of(std::string_view extension) {
  if (extension == ".gz") return Compression::kGzip;
  return extension == ".zst" || extension == ".zstd" ? Compression::kZstd : Compression::kNone;
}

bool compresses_itself(DataFormat format) { return format == DataFormat::kParquet || format == DataFormat::kArrow; }

}  // namespace

std::optional<FileFormat> format_of(const std::filesystem::path& path) {
  FileFormat found{.compression = compression_of(path.extension().string())};
  const bool is_plain = found.compression == Compression::kNone;
  const std::string extension = (is_plain ? path : path.stem()).extension().string();
  for (const auto& [name, format] : kFormats) {
    if (extension != name) continue;
    if (!is_plain && compresses_itself(format)) return std::nullopt;
    found.format = format;
    return found;
  }
  return std::nullopt;
}

std::string known_formats() { return ".jsonl, .json, .csv, .tsv, .txt (each also .gz or .zst), .parquet or .arrow"; }

}  // namespace hone
