#include "tracker/wandb/datastore.h"

#include <algorithm>

#include "core/files.h"
#include "tracker/protobuf.h"

namespace hone {
namespace {

constexpr std::size_t kBlock = 32768;   // bytes
constexpr std::size_t kPartHeader = 7;  // bytes: checksum (4), length (2), type (1)
constexpr std::uint64_t kMagic = 0xBEE1, kVersion = 0;
constexpr int kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4;

}  // namespace

WandbDatastore::WandbDatastore(std::filesystem::path path) : path_(std::move(path)) {
  const std::string header = ":W&B" + little_endian(kMagic, 2) + little_endian(kVersion, 1);
  write_file(path_, header);
  size_ = header.size();
}

void WandbDatastore::add_part(std::string_view data, int type, std::string& bytes) {
  const std::uint32_t crc = crc32(data, crc32(little_endian(static_cast<std::uint64_t>(type), 1)));
  bytes += little_endian(crc, 4) + little_endian(data.size(), 2) + little_endian(static_cast<std::uint64_t>(type), 1);
  bytes += data;
}

void WandbDatastore::append(std::string_view record) {
  std::string bytes;
  bool first = true;
  for (bool last = false; !last; first = false) {
    // Parts do not cross blocks: a record is split, and a rest of a block too short for a header is zero.
    std::size_t left = kBlock - (size_ + bytes.size()) % kBlock;
    if (left < kPartHeader) {
      bytes.append(left, '\0');
      left = kBlock;
    }
    const std::size_t length = std::min(record.size(), left - kPartHeader);
    last = length == record.size();
    add_part(record.substr(0, length), first ? (last ? kFull : kFirst) : (last ? kLast : kMiddle), bytes);
    record.remove_prefix(length);
  }
  append_file(path_, bytes);
  size_ += bytes.size();
}

}  // namespace hone
