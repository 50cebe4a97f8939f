// Writes the file of an offline wandb run, `run-ID.wandb`: wandb's header, then records in the format of LevelDB's log.
// Checksums are zlib's CRC-32, unlike LevelDB's.
// Sources: https://github.com/google/leveldb/blob/main/doc/log_format.md, wandb/sdk/internal/datastore.py (0.19)
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace hone {

class WandbDatastore {
 public:
  // Creates the file with its header, replacing an existing one. Throws Error if it cannot be written.
  explicit WandbDatastore(std::filesystem::path path);
  // Appends one serialised Record message. Throws Error if it cannot be written.
  void append(std::string_view record);

 private:
  void add_part(std::string_view data, int type, std::string& bytes);

  std::filesystem::path path_;
  std::uint64_t size_ = 0;
};

}  // namespace hone
