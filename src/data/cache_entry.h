// A file of a cache: a JSON text and flat arrays, with checksums. Whoever reads one gets all of it or nothing.
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
  std::string head;                                  // JSON
  std::vector<std::span<const std::byte>> sections;  // each aligned to 64 bytes
  std::shared_ptr<const void> owner;                 // keeps the sections alive
};

// Maps PATH. None where there is no such file, or where it is cut short, damaged or made for another key: those are
// said, since they should not be.
[[nodiscard]] std::optional<CacheEntry> read_cache_entry(const std::filesystem::path& path, std::string_view key);

// Written into a folder of its own beside PATH, synced, renamed: any number of processes may write the same entry.
// Throws Error, and then leaves nothing.
void write_cache_entry(const std::filesystem::path& path, std::string_view key, std::string_view head,
                       std::span<const std::span<const std::byte>> sections);

// Removes what nobody has read or written for 30 days, killed writers' folders too. What cannot be removed stays.
void remove_old_entries(const std::filesystem::path& folder);

}  // namespace hone
