#include "data/file_format.h"

#include <array>
#include <string_view>
#include <utility>

namespace hone {
namespace {

constexpr std::array<std::pair<std::string_view, DataFormat>, 10> kFormats = {{{".jsonl", DataFormat::jsonl},
                                                                               {".json", DataFormat::json},
                                                                               {".csv", DataFormat::csv},
                                                                               {".tsv", DataFormat::tsv},
                                                                               {".txt", DataFormat::text},
                                                                               {".parquet", DataFormat::parquet},
                                                                               {".arrow", DataFormat::arrow},
                                                                               {".ndjson", DataFormat::jsonl},
                                                                               {".text", DataFormat::text},
                                                                               {".feather", DataFormat::arrow}}};

Compression compression_of(std::string_view extension) {
  if (extension == ".gz") return Compression::gzip;
  return extension == ".zst" || extension == ".zstd" ? Compression::zstd : Compression::none;
}

bool compresses_itself(DataFormat format) { return format == DataFormat::parquet || format == DataFormat::arrow; }

}  // namespace

std::optional<FileFormat> format_of(const std::filesystem::path& path) {
  FileFormat found{.compression = compression_of(path.extension().string())};
  const bool is_plain = found.compression == Compression::none;
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
