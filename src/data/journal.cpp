#include "data/journal.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"

namespace hone {
namespace fs = std::filesystem;

Journal::Journal(fs::path path, std::string key_column, JournalUse use)
    : path_(std::move(path)), key_column_(std::move(key_column)) {
  if (is_file(path_)) scan(use);
}

void Journal::scan(JournalUse use) {
  std::size_t size = 0;
  {
    const MappedFile file(path_);
    std::string_view text = file.text();
    size = text.size();
    std::size_t line = 0;
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', end_)) {
      const std::string place = text_of(path_.string(), " line ", ++line);
      const Json row = parse_json(text.substr(end_, end - end_), place);
      const auto key = row.is_object() ? row.find(key_column_) : row.end();
      if (key == row.end() || !key->is_string()) {
        throw Error(place, text_of("has no text '", key_column_, "'"), "check that this file was written by hone");
      }
      places_.try_emplace(key->get<std::string>(), Place{end_, end - end_});
      end_ = end + 1;
    }
  }
  // Cut off the incomplete last line.
  if (size == end_ || use == JournalUse::kRead) return;
  std::error_code error;
  fs::resize_file(path_, end_, error);
  if (error) throw Error(path_.string(), "cannot cut off the incomplete last line: " + error.message());
}

Json Journal::read(const std::string& key) const {
  const auto found = places_.find(key);
  HONE_ASSERT(found != places_.end(), "the journal has no ", key);
  std::ifstream file(path_, std::ios::binary);
  std::string line(found->second.size, '\0');
  file.seekg(static_cast<std::streamoff>(found->second.offset));
  if (!file.read(line.data(), static_cast<std::streamsize>(line.size()))) {
    throw Error(path_.string(), "cannot be read");
  }
  return parse_json(line, path_.string());
}

void Journal::append(const Json& row) {
  const std::string line = row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  append_file(path_, line);
  places_.try_emplace(row.at(key_column_).get<std::string>(), Place{end_, line.size() - 1});
  end_ += line.size();
}

std::string content_key(std::string_view bytes) {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  std::array<std::uint64_t, 2> hashes = {0xcbf29ce484222325, 0x9ae16a3b2f90404f};
  for (std::uint64_t& hash : hashes) {
    for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
    hash ^= hash >> 32;
  }
  std::array<char, 33> text{};
  (void)std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(hashes[0]),
                      static_cast<unsigned long long>(hashes[1]));
  return text.data();
}

}  // namespace hone
