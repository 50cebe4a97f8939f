// A file to be pushed to the hub.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace hone {

// Keeps its file open from construction on, so a checkpoint that is deleted meanwhile is still pushed completely.
// Copies share the content. Not thread-safe.
class UploadFile {
 public:
  // `path`: path in the repository. Throws Error if the file cannot be opened.
  UploadFile(std::string path, const std::filesystem::path& file);
  // Holds `content` in memory instead of a file.
  UploadFile(std::string path, std::string content);

  [[nodiscard]] UploadFile at(std::string path) const;  // the same content at another path

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::int64_t size() const;
  // Fills `out` with the bytes from `offset`. Throws Error if the file has become shorter or cannot be read.
  void read(std::int64_t offset, std::span<char> out) const;
  [[nodiscard]] std::string content() const;  // the whole content
  // Lower-case hexadecimal hash, computed at the first call by reading the content in pieces. Throws like read(), and
  // Interrupted.
  [[nodiscard]] const std::string& sha256() const;
  [[nodiscard]] std::string git_sha1() const;  // the name that git gives to the blob

 private:
  struct Content;
  UploadFile(std::string path, std::shared_ptr<Content> content);

  std::string path_;
  std::shared_ptr<Content> content_;
};

}  // namespace hone
