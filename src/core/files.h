// Files: whole reads, memory maps, and writes that leave the old file or the new one, never a part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// Whether there is one; false where the system does not say.
[[nodiscard]] bool is_file(const std::filesystem::path& path);
[[nodiscard]] bool is_folder(const std::filesystem::path& path);

// All below throw Error with the path and the system's reason.
[[nodiscard]] std::vector<std::string> names_in(const std::filesystem::path& folder);  // sorted, "." and ".." left out
// Makes the folder where it is not there. Throws Error, naming `key`, where nothing could be written into it: before
// the work whose results it is to hold.
void claim_folder(const std::filesystem::path& folder, std::string_view key);
[[nodiscard]] std::string read_file(const std::filesystem::path& path);
// Written beside as PATH.partial, synced, renamed over PATH; the folder is synced too.
void write_file(const std::filesystem::path& path, std::string_view content);
void append_file(const std::filesystem::path& path, std::string_view content);
void create_directories(const std::filesystem::path& path);
// Replaces `to` where it is a file; syncs the parent of `to`.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
// A file, or a folder with all below; nothing happens where there is none.
void remove_path(const std::filesystem::path& path);
// Syncs a file or a folder to the disk.
void sync_path(const std::filesystem::path& path);
// Syncs a folder with all below.
void sync_tree(const std::filesystem::path& folder);
// Syncs `from` with all below, then renames the folder to `to` (which must not exist) and syncs its parent.
void publish_directory(const std::filesystem::path& from, const std::filesystem::path& to);

// A file written piece by piece beside its place, as PATH.partial. commit() syncs it, renames it over PATH and syncs
// the folder; without a commit nothing is left.
class FileWriter {
 public:
  explicit FileWriter(std::filesystem::path path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  int descriptor_ = -1;
};

// A file mapped read-only. Movable; unmapped at the end of its life.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hone
