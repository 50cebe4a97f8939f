// The file of an offline run, `run-ID.wandb`: records in the format of LevelDB's log behind a header of wandb's own.
// Sources: https://github.com/google/leveldb/blob/main/doc/log_format.md, wandb/sdk/internal/datastore.py (0.19); the
// checksums are zlib's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace hone {

class WandbDatastore {
 public:
  // Begins the file, which must not be there. Throws Error.
  explicit WandbDatastore(std::filesystem::path path);
  // One serialised Record.
  void append(std::string_view record);

 private:
  void add_part(std::string_view data, int type, std::string& bytes);

  std::filesystem::path path_;
  std::uint64_t size_ = 0;
};

}  // namespace hone
