// A file on its way to the hub.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace hone {

// Holds its file open from the moment it is made: a checkpoint that is deleted meanwhile is still pushed whole. Copies
// share the content. Not thread-safe.
class UploadFile {
 public:
  // `path`: in the repository. Throws Error where the file cannot be opened.
  UploadFile(std::string path, const std::filesystem::path& file);
  // A file whose content is in memory.
  UploadFile(std::string path, std::string content);

  [[nodiscard]] UploadFile at(std::string path) const;  // the same content at another path

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::int64_t size() const;
  // Fills `out` from `offset` on. Throws Error where the file has become shorter or cannot be read.
  void read(std::int64_t offset, std::span<char> out) const;
  [[nodiscard]] std::string content() const;  // all of it
  // Lower case hexadecimal; computed at the first call, in pieces. Throw Error as read(), and Interrupted.
  [[nodiscard]] const std::string& sha256() const;
  [[nodiscard]] std::string git_sha1() const;  // as git names a blob

 private:
  struct Content;
  UploadFile(std::string path, std::shared_ptr<Content> content);

  std::string path_;
  std::shared_ptr<Content> content_;
};

}  // namespace hone
