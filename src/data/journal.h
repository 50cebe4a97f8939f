// An append-only file of JSON lines, looked up by key. A run records results in it and finds them again after a
// restart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/json.h"

namespace hone {

enum class JournalUse : std::uint8_t {
  kAppend,
  kRead,  // while another process may append
};

// One JSON object per line; its text column `key_column` is the key.
class Journal {
 public:
  // Opens `path` and indexes its lines. An incomplete last line, left by a killed process, is cut off, or passed over
  // if the journal is only read; of two lines with the same key the first counts. Throws Error that names the line if
  // it is not an object with the text column `key_column`.
  Journal(std::filesystem::path path, std::string key_column, JournalUse use = JournalUse::kAppend);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::string& key_column() const { return key_column_; }
  [[nodiscard]] std::size_t size() const { return places_.size(); }
  [[nodiscard]] bool contains(const std::string& key) const { return places_.contains(key); }
  // Returns the line with this key, which must exist.
  [[nodiscard]] Json read(const std::string& key) const;
  // Calls visit(key) for the key of each line, in any order.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [key, place] : places_) visit(key);
  }
  // Appends a row, which contains its key. When the call returns, the row survives the end of this process.
  void append(const Json& row);

 private:
  struct Place {
    std::size_t offset = 0;
    std::size_t size = 0;
  };
  void scan(JournalUse use);

  std::filesystem::path path_;
  std::string key_column_;
  std::unordered_map<std::string, Place> places_;
  std::size_t end_ = 0;
};

// Returns a 128-bit content hash in hexadecimal: two 64-bit FNV-1a hashes with different initial values.
[[nodiscard]] std::string content_key(std::string_view bytes);

}  // namespace hone
