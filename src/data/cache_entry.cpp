#include "data/cache_entry.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/parallel.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

// File format: this preamble, the head as JSON, and each section, aligned to kAlignment bytes. The JSON is {"key",
// "sections": [[bytes, checksum] ...], "head"}.
struct Preamble {
  std::array<char, 8> magic;
  std::uint64_t head_bytes;
  std::uint64_t head_checksum;
};
constexpr std::array<char, 8> kMagic{'h', 'o', 'n', 'e', 't', 'o', 'k', '1'};
constexpr std::size_t kAlignment = 64;
static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// The CRC-32 of the CRC-32s of all 4 MiB pieces, which are computed in parallel.
std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  std::vector<std::uint32_t> pieces((bytes.size() + kPiece - 1) / kPiece);
  parallel_for(std::ssize(pieces), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      pieces[i] = crc_of(bytes.subspan(i * kPiece, std::min(kPiece, bytes.size() - i * kPiece)));
    }
  });
  return crc_of(std::as_bytes(std::span(pieces)));
}

// Throws Error with a description of the damage.
CacheEntry parse_entry(const std::shared_ptr<const MappedFile>& file, std::string_view key) {
  const std::span<const std::byte> bytes = file->bytes();
  Preamble preamble{};
  if (bytes.size() < sizeof preamble) throw Error("it is truncated");
  std::memcpy(&preamble, bytes.data(), sizeof preamble);
  if (preamble.magic != kMagic) throw Error("it is not a cache file of hone");
  if (preamble.head_bytes > bytes.size() - sizeof preamble) throw Error("it is truncated");
  const std::string_view head = file->text().substr(sizeof preamble, preamble.head_bytes);
  if (checksum_of(bytes_of(head)) != preamble.head_checksum) throw Error("its head does not match its checksum");
  const Json json = parse_json(head, "its head");
  if (json.at("key") != key) throw Error("it was written for another key");
  CacheEntry entry{.head = json.at("head").dump(), .sections = {}, .owner = file};
  std::size_t at = aligned(sizeof preamble + head.size());
  for (const Json& section : json.at("sections")) {
    const auto size = section.at(0).get<std::size_t>();
    if (at > bytes.size() || size > bytes.size() - at) throw Error("it is truncated");
    entry.sections.push_back(bytes.subspan(at, size));
    if (checksum_of(entry.sections.back()) != section.at(1).get<std::uint64_t>()) {
      throw Error("its data does not match its checksum");
    }
    at += aligned(size);
  }
  return entry;
}

}  // namespace

std::optional<CacheEntry> read_cache_entry(const fs::path& path, std::string_view key) {
  if (!is_file(path)) return std::nullopt;
  try {
    CacheEntry entry = parse_entry(std::make_shared<const MappedFile>(path), key);
    std::error_code ignored;
    fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // marks it as used for remove_old_entries
    return entry;
  } catch (const Error& error) {
    log_warning(text_of(path.string(), " is not used: ", error.what()));
  } catch (const Json::exception& error) {
    log_warning(text_of(path.string(), " is not used: ", error.what()));
  }
  return std::nullopt;
}

void write_cache_entry(const fs::path& path, std::string_view key, std::string_view head,
                       std::span<const std::span<const std::byte>> sections) {
  Json json{{"key", key}, {"sections", Json::array()}, {"head", parse_json(head, "head")}};
  for (const auto& section : sections) json["sections"].push_back({section.size(), checksum_of(section)});
  const std::string text = json.dump();
  const Preamble preamble{.magic = kMagic, .head_bytes = text.size(), .head_checksum = checksum_of(bytes_of(text))};

  hone::create_directories(path.parent_path());
  const TemporaryFolder folder(path.parent_path(), "new");
  FileWriter file(folder.path() / "entry");
  const std::string padding(kAlignment, '\0');
  const auto pad_from = [&](std::size_t size) {
    file.write(std::string_view(padding).substr(0, aligned(size) - size));
  };
  file.write(std::as_bytes(std::span(&preamble, 1)));
  file.write(text);
  pad_from(sizeof preamble + text.size());
  for (const auto& section : sections) {
    file.write(section);
    pad_from(section.size());
  }
  file.commit();
  rename_path(folder.path() / "entry", path);
}

void remove_old_entries(const fs::path& folder) {
  const auto oldest = fs::file_time_type::clock::now() - std::chrono::hours(24 * 30);
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const fs::file_time_type time = fs::last_write_time(entry->path(), ignored);
    if (!ignored && time < oldest) fs::remove_all(entry->path(), ignored);
  }
}

}  // namespace hone
