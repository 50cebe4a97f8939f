#include "checkpoint/model_directory.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/files.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

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

}  // namespace

ModelDirectory::ModelDirectory(fs::path path) : path_(std::move(path)), config_(read_config(path_)), weights_(path_) {
  if (is_file(path_ / "generation_config.json")) generation_config_ = read_object(path_ / "generation_config.json");
}

void write_model_directory(const fs::path& path, const ModelContent& content) {
  hone::create_directories(path);
  write_weights(path, content.weights, content.max_shard_bytes);
  write_json(path / "config.json", content.config);
  if (content.generation_config != nullptr) write_json(path / "generation_config.json", *content.generation_config);
}

}  // namespace hone
