// File access: whole reads, memory maps, and atomic writes, which leave either the old file or the complete new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// Return true if the path is a regular file or a folder; false if it does not exist or cannot be examined.
[[nodiscard]] bool is_file(const std::filesystem::path& path);
[[nodiscard]] bool is_folder(const std::filesystem::path& path);

// All functions and classes below throw Error with the path and the system's reason.

// Names of the entries of a folder, sorted, without "." and "..".
[[nodiscard]] std::vector<std::string> list_folder(const std::filesystem::path& folder);
// Creates the folder if necessary and checks that it is writable, so that a command fails before its work and not when
// it saves the results. Error messages begin with `key`, the option that names the folder.
void ensure_writable_folder(const std::filesystem::path& folder, std::string_view key);
[[nodiscard]] std::string read_file(const std::filesystem::path& path);
// Replaces the file atomically and durably, through a FileWriter.
void write_file(const std::filesystem::path& path, std::string_view content);
void append_file(const std::filesystem::path& path, std::string_view content);  // without fsync
void create_directories(const std::filesystem::path& path);
// Renames a file or folder, replacing `to` if that is a file, and syncs the parent of `to`.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
// Removes a file, or a folder and everything below it; does nothing if the path does not exist.
void remove_path(const std::filesystem::path& path);
// Flushes a file or a folder to the disk (fsync).
void sync_path(const std::filesystem::path& path);
// Flushes a folder and everything below it.
void sync_tree(const std::filesystem::path& folder);
// Flushes `from` and everything below it, renames it to `to` (which must not exist) and syncs the parent: after a crash
// `to` is either missing or complete.
void publish_directory(const std::filesystem::path& from, const std::filesystem::path& to);

// Writes a file piece by piece into PATH.partial. commit() syncs that file, renames it over PATH and syncs the folder;
// a writer destroyed without commit() removes it and leaves PATH unchanged.
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

// A new empty folder PARENT/PREFIX-XXXXXX with a unique name; the destructor removes it with its contents.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent, std::string_view prefix);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Read-only memory map of a whole file, unmapped by the destructor.
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
