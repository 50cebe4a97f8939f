// Reads and writes model folders in Hugging Face's layout, and finds them by name.
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

// An adapter folder written by PEFT or hone: adapter_config.json and adapter_model.safetensors.
struct AdapterFolder {
  std::filesystem::path path;
  std::shared_ptr<const Json> config;  // a JSON object
  std::shared_ptr<const SafetensorsFile> weights;
};
// Returns true if the folder has an adapter and no model weights.
[[nodiscard]] bool is_adapter_folder(const std::filesystem::path& folder);

// Returns true if the adapter has tensors for the embedding or the head.
[[nodiscard]] bool changes_tables(const AdapterFolder& adapter);

// An opened model folder. For an adapter's folder it consists of the base model and the adapters to merge into it.
class ModelDirectory {
 public:
  // Reads config.json and, if present, generation_config.json, and maps the weights into memory. A folder without
  // weights is allowed (pre-training starts from one); weights() is then empty. For an adapter's folder, opens the base
  // that base_model_name_or_path names: a model or another adapter, by model name, by path, or by a path relative to
  // the adapter's folder. Throws Error.
  explicit ModelDirectory(std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // The content of config.json, a JSON object. If an adapter changes the embedding or the head, tie_word_embeddings is
  // set to false, because the two differ after merging, although weights() may still have one tensor for both.
  [[nodiscard]] const Json& config() const { return *config_; }
  [[nodiscard]] const Json* generation_config() const { return generation_config_.get(); }  // may be null
  [[nodiscard]] const WeightFiles& weights() const { return weights_; }
  // Adapters to merge into the weights, in this order.
  [[nodiscard]] std::span<const AdapterFolder> adapters() const { return adapters_; }
  // The folder of the tokenizer: path(), or the base's folder if an adapter's folder has no tokenizer.
  [[nodiscard]] std::filesystem::path tokenizer_path() const;

 private:
  std::filesystem::path path_;
  std::vector<AdapterFolder> adapters_;
  std::filesystem::path base_;  // the folder of the base model; path_ if there are no adapters
  std::shared_ptr<const Json> config_;
  std::shared_ptr<const Json> generation_config_;
  WeightFiles weights_;
};

// The content of a model folder, without the tokenizer's files.
struct ModelContent {
  const Json& config;
  const Json* generation_config = nullptr;  // not written if null
  std::span<const TensorSource> weights;
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
};

// Writes a model folder and creates `path` if needed. Each file appears complete or not at all. Throws Error.
void write_model_directory(const std::filesystem::path& path, const ModelContent& content);

// Finds the folder of a model. If `name` is a folder, returns it. Otherwise returns the snapshot of `revision` (a
// branch, tag or commit) in Hugging Face's cache (HF_HUB_CACHE, or hub/ in HF_HOME, or ~/.cache/huggingface/hub), after
// downloading missing files from the hub unless HF_HUB_OFFLINE is set. Throws Error with the places searched.
[[nodiscard]] std::filesystem::path resolve_model(std::string_view name, std::string_view revision = "main");
// Returns true if resolve_model() would find all files locally, without a download.
[[nodiscard]] bool is_model_local(std::string_view name, std::string_view revision = "main");
// Like resolve_model(), for callers that only need config.json: downloads no other file.
[[nodiscard]] std::filesystem::path resolve_config(std::string_view name, std::string_view revision = "main");

}  // namespace hone
