// A model folder in Hugging Face's layout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "checkpoint/weight_files.h"
#include "core/json.h"

namespace hone {

class ModelDirectory {
 public:
  // Reads config.json and, where present, generation_config.json; maps the weights. A folder without weights is fine
  // (pre-training starts from one): weights() is empty then. Throws Error.
  explicit ModelDirectory(std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const Json& config() const { return *config_; }                             // an object
  [[nodiscard]] const Json* generation_config() const { return generation_config_.get(); }  // an object, or null
  [[nodiscard]] const WeightFiles& weights() const { return weights_; }

 private:
  std::filesystem::path path_;
  std::shared_ptr<const Json> config_;
  std::shared_ptr<const Json> generation_config_;
  WeightFiles weights_;
};

// What a model folder is made of, but the tokenizer's files.
struct ModelContent {
  const Json& config;
  const Json* generation_config = nullptr;  // not written where null
  std::span<const TensorSource> weights;
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
};

// Writes them into `path`, which is created if need be; each file appears whole or not at all. Throws Error.
void write_model_directory(const std::filesystem::path& path, const ModelContent& content);

// The folder of a model: `name` itself where it is one, else the snapshot of `revision` (a branch, a tag or a commit)
// in Hugging Face's cache: HF_HUB_CACHE, or hub/ in HF_HOME, or ~/.cache/huggingface/hub. Throws Error that says where
// it looked.
[[nodiscard]] std::filesystem::path resolve_model(std::string_view name, std::string_view revision = "main");

}  // namespace hone
