// Reads and writes sets of tensors in Hugging Face's layout: STEM.safetensors, or shards
// STEM-00001-of-00002.safetensors with STEM.safetensors.index.json. The stem is "model" for the weights of a model
// folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/safetensors.h"

namespace hone {

inline constexpr std::string_view kWeightStem = "model";

// Returns true if a set with this stem can have a file of this name: the single file, the index or a shard.
[[nodiscard]] bool is_name_of_set(const std::string& name, std::string_view stem);

class WeightFiles {
 public:
  // Memory-maps the files of a folder; a folder without weights is allowed. As in transformers, STEM.safetensors has
  // precedence over an index. Throws Error if a shard is missing or invalid, or if a tensor is in two shards or not in
  // the shard that the index names.
  explicit WeightFiles(const std::filesystem::path& folder, std::string_view stem = kWeightStem);

  [[nodiscard]] bool empty() const { return files_.empty(); }
  [[nodiscard]] std::span<const SafetensorsFile> files() const { return files_; }
  [[nodiscard]] std::vector<std::string> names() const;                 // file by file, in file order
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;  // null if there is none
  [[nodiscard]] const StoredTensor& at(std::string_view name) const;    // throws Error with the nearest name

 private:
  std::string folder_;
  std::string stem_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string_view, const StoredTensor*> index_;  // keys refer to the names in files_
};

inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

// Writes tensors into an existing folder: as STEM.safetensors, or, if they exceed max_shard_bytes, as shards that are
// filled greedily in the order of `sources` and named and indexed as by transformers. A source is never split; pieces
// of one tensor may be in several shards. `metadata` is written to each file. An existing set is replaced. While
// shards are being renamed the folder has no index, so a reader sees an incomplete set, never a mixture of old and new.
void write_weights(const std::filesystem::path& folder, std::span<const TensorSource> sources,
                   std::uint64_t max_shard_bytes = kDefaultShardBytes, std::string_view stem = kWeightStem,
                   const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace hone
