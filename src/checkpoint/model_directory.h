// A model folder in Hugging Face's layout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/weight_files.h"
#include "core/json.h"

namespace hone {

// A folder that PEFT or hone wrote an adapter to: adapter_config.json and adapter_model.safetensors.
struct AdapterFolder {
  std::filesystem::path path;
  std::shared_ptr<const Json> config;  // an object
  std::shared_ptr<const SafetensorsFile> weights;
};
// Whether it holds an adapter and no weights of a model.
[[nodiscard]] bool is_adapter_folder(const std::filesystem::path& folder);

// Whether it has tensors of a token table, be it the embedding or the head.
[[nodiscard]] bool changes_tables(const AdapterFolder& adapter);

class ModelDirectory {
 public:
  // Reads config.json and, where present, generation_config.json; maps the weights. A folder without weights is fine
  // (pre-training starts from one): weights() is empty then. Of an adapter's folder, those of the base that its
  // base_model_name_or_path names: a model, or another adapter's folder; by itself, or beside the adapter. Throws
  // Error.
  explicit ModelDirectory(std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // An object. Where an adapter has something for the embedding or the head alone, tie_word_embeddings is false in it:
  // merged, they are two, though weights() may hold one tensor for both.
  [[nodiscard]] const Json& config() const { return *config_; }
  [[nodiscard]] const Json* generation_config() const { return generation_config_.get(); }  // an object, or null
  [[nodiscard]] const WeightFiles& weights() const { return weights_; }
  // To be merged into the weights, in this order.
  [[nodiscard]] std::span<const AdapterFolder> adapters() const { return adapters_; }
  // The folder of the tokenizer: path(), or the base's where an adapter's has none.
  [[nodiscard]] std::filesystem::path tokenizer_path() const;

 private:
  std::filesystem::path path_;
  std::vector<AdapterFolder> adapters_;
  std::filesystem::path base_;  // path_, or the folder of what the adapters are for
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
// Whether resolve_model would find all of it here, with nothing to download.
[[nodiscard]] bool is_model_here(std::string_view name, std::string_view revision = "main");
// The same as resolve_model for whom config.json is enough: of a model that is not in the cache nothing else is
// downloaded.
[[nodiscard]] std::filesystem::path resolve_config(std::string_view name, std::string_view revision = "main");

}  // namespace hone
