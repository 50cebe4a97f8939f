#include "checkpoint/model_directory.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr const char* kAdapterWeights = "adapter_model.safetensors";

std::shared_ptr<const Json> read_object(const fs::path& path) {
  auto value = std::make_shared<const Json>(read_json(path));
  if (!value->is_object()) throw Error(path.string(), text_of("is not a JSON object but ", value->type_name()));
  return value;
}

std::shared_ptr<const Json> read_config(const fs::path& folder) {
  if (!is_folder(folder)) throw Error(folder.string(), "is not a model folder: there is no such folder");
  if (!is_file(folder / "config.json")) throw Error(folder.string(), "is not a model folder: it has no config.json");
  return read_object(folder / "config.json");
}

// The folder of an adapter's base, from base_model_name_or_path in its configuration.
fs::path base_of(const AdapterFolder& adapter) {
  const fs::path file = adapter.path / kAdapterConfig;
  const auto found = adapter.config->find("base_model_name_or_path");
  if (found == adapter.config->end() || !found->is_string()) {
    throw Error(file.string(), "base_model_name_or_path is not set", "set it to the folder or name of the base model");
  }
  const std::string name = found->get<std::string>();
  const auto revision = adapter.config->find("revision");
  const bool has_revision = revision != adapter.config->end() && revision->is_string();
  try {
    fs::path beside = adapter.path / name;
    if (!is_folder(name) && is_folder(beside)) return beside;
    return has_revision ? resolve_model(name, revision->get<std::string>()) : resolve_model(name);
  } catch (const Error& error) {
    throw Error(file.string(), text_of("base_model_name_or_path: ", error.what()));
  }
}

AdapterFolder read_adapter(const fs::path& folder) {
  return {folder, read_object(folder / kAdapterConfig),
          std::make_shared<const SafetensorsFile>(folder / kAdapterWeights)};
}

// Collects the adapters of a folder, outermost first, and returns the folder of the base model below them.
fs::path collect_adapters(const fs::path& path, std::vector<AdapterFolder>& adapters) {
  constexpr std::size_t kMost = 8;
  fs::path folder = path;
  while (is_adapter_folder(folder)) {
    if (adapters.size() == kMost) {
      throw Error(path.string(), text_of("more than ", kMost, " stacked adapters, or an adapter that is its own base"));
    }
    adapters.push_back(read_adapter(folder));
    folder = base_of(adapters.back());
  }
  return folder;
}

}  // namespace

bool is_adapter_folder(const fs::path& folder) {
  return is_file(folder / kAdapterConfig) && !is_file(folder / "model.safetensors") &&
         !is_file(folder / "model.safetensors.index.json");
}

bool changes_tables(const AdapterFolder& adapter) {
  for (const StoredTensor& tensor : adapter.weights->tensors()) {
    for (const std::string_view table : {".embed_tokens.", ".wte.", ".lm_head."}) {
      if (tensor.name.find(table) != std::string::npos) return true;
    }
  }
  return false;
}

ModelDirectory::ModelDirectory(fs::path path)
    : path_(std::move(path)), base_(collect_adapters(path_, adapters_)), config_(read_config(base_)), weights_(base_) {
  std::reverse(adapters_.begin(), adapters_.end());
  if (std::ranges::any_of(adapters_, changes_tables)) {
    Json config = *config_;
    config["tie_word_embeddings"] = false;
    config_ = std::make_shared<const Json>(std::move(config));
  }
  for (const fs::path& folder : {path_, base_}) {
    if (generation_config_ == nullptr && is_file(folder / "generation_config.json")) {
      generation_config_ = read_object(folder / "generation_config.json");
    }
  }
}

fs::path ModelDirectory::tokenizer_path() const {
  return is_file(path_ / "tokenizer.json") || is_file(path_ / "tokenizer.model") ? path_ : base_;
}

void write_model_directory(const fs::path& path, const ModelContent& content) {
  hone::create_directories(path);
  write_weights(path, content.weights, content.max_shard_bytes);
  write_json(path / "config.json", content.config);
  if (content.generation_config != nullptr) write_json(path / "generation_config.json", *content.generation_config);
}

}  // namespace hone
