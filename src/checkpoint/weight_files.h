// The weights of a Hugging Face model folder: model.safetensors, or shards with model.safetensors.index.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/safetensors.h"

namespace hone {

class WeightFiles {
 public:
  // Maps the files; a folder without either gives none. As in transformers model.safetensors wins over an index. Throws
  // Error where a shard is missing or broken, a tensor is not in the shard that the index names, or is in two of them.
  explicit WeightFiles(const std::filesystem::path& folder);

  [[nodiscard]] bool empty() const { return files_.empty(); }
  [[nodiscard]] std::span<const SafetensorsFile> files() const { return files_; }
  [[nodiscard]] std::vector<std::string> names() const;                 // file by file, in the order of their bytes
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;  // null where there is none
  [[nodiscard]] const StoredTensor& at(std::string_view name) const;    // throws Error with the nearest name

 private:
  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string_view, const StoredTensor*> index_;  // by the names in files_
};

inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

// Writes the weights into `folder`, which exists: one model.safetensors, or, where they exceed max_shard_bytes, shards
// filled greedily in the order of `sources`, named and indexed as transformers does. A tensor is never split. Weights
// that were there before are replaced: while shards change places the folder has no index and so reads as incomplete,
// never as a mixture.
void write_weights(const std::filesystem::path& folder, std::span<const TensorSource> sources,
                   std::uint64_t max_shard_bytes = kDefaultShardBytes);

}  // namespace hone
