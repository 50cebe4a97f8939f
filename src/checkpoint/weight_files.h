// Reads and writes the weights of a Hugging Face model folder: model.safetensors, or shards with
// model.safetensors.index.json.
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
  // Memory-maps the files of a folder; a folder without weights is allowed. As in transformers, model.safetensors has
  // precedence over an index. Throws Error if a shard is missing or invalid, or if a tensor is in two shards or not in
  // the shard that the index names.
  explicit WeightFiles(const std::filesystem::path& folder);

  [[nodiscard]] bool empty() const { return files_.empty(); }
  [[nodiscard]] std::span<const SafetensorsFile> files() const { return files_; }
  [[nodiscard]] std::vector<std::string> names() const;                 // file by file, in file order
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;  // null if there is none
  [[nodiscard]] const StoredTensor& at(std::string_view name) const;    // throws Error with the nearest name

 private:
  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string_view, const StoredTensor*> index_;  // keys refer to the names in files_
};

inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

// Writes the weights into an existing folder: as model.safetensors, or, if they exceed max_shard_bytes, as shards that
// are filled greedily in the order of `sources` and named and indexed as by transformers. A tensor is never split.
// Existing weights are replaced. While shards are being renamed the folder has no index, so a reader sees an incomplete
// model, never a mixture of old and new weights.
void write_weights(const std::filesystem::path& folder, std::span<const TensorSource> sources,
                   std::uint64_t max_shard_bytes = kDefaultShardBytes);

}  // namespace hone
