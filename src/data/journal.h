// Lines of JSON that a run appends as it gets them, and finds again after it was stopped.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/json.h"

namespace hone {

class Journal {
 public:
  // Finds what stands in `path`. A last line without its end, which a kill leaves, is cut off; of two lines with one
  // key the first counts. Throws Error naming a line that is no object with the text `key_column`.
  Journal(std::filesystem::path path, std::string key_column);

  [[nodiscard]] std::size_t size() const { return places_.size(); }
  [[nodiscard]] bool contains(const std::string& key) const { return places_.contains(key); }
  // The line that has the key; it must be there.
  [[nodiscard]] Json read(const std::string& key) const;
  // Appends the row, which holds its key. On return it outlives this process.
  void append(const Json& row);

 private:
  struct Place {
    std::size_t offset = 0;
    std::size_t size = 0;
  };
  void scan();

  std::filesystem::path path_;
  std::string key_column_;
  std::unordered_map<std::string, Place> places_;
  std::size_t end_ = 0;
};

// 128 bits as hexadecimal digits: two FNV-1a hashes of 64 bits that begin apart.
[[nodiscard]] std::string content_key(std::string_view bytes);

}  // namespace hone
