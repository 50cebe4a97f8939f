// A cache file: a JSON head and flat arrays, protected by checksums. A reader gets the whole entry or none of it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct CacheEntry {
  std::string head;                                  // JSON text
  std::vector<std::span<const std::byte>> sections;  // each aligned to 64 bytes
  std::shared_ptr<const void> owner;                 // keeps the memory of the sections alive
};

// Maps the file at `path`. Returns nullopt if there is no such file, and also if it is truncated, damaged or was
// written for another key; these three are unexpected, so each logs a warning.
[[nodiscard]] std::optional<CacheEntry> read_cache_entry(const std::filesystem::path& path, std::string_view key);

// Writes the entry to a temporary folder next to `path`, syncs it and renames it, so any number of processes may write
// the same entry. Throws Error and leaves no partial file.
void write_cache_entry(const std::filesystem::path& path, std::string_view key, std::string_view head,
                       std::span<const std::span<const std::byte>> sections);

// Removes entries that were not read or written for 30 days, and folders left behind by killed writers. Entries that
// cannot be removed are kept.
void remove_old_entries(const std::filesystem::path& folder);

}  // namespace hone
