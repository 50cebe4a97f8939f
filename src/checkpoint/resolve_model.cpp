// Finds models by name: as a folder, in Hugging Face's cache, or on the hub.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/model_directory.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/yaml.h"
#include "hub/hub.h"
#include "system/cache_folder.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

// Returns true for the files of a repository that hone reads. Other files repeat the same weights in other formats.
bool is_model_file(std::string_view path) {
  if (path.find('/') != std::string_view::npos) return false;
  if (path.ends_with(".safetensors")) return !path.starts_with("consolidated");
  return path.ends_with(".json") || path.ends_with(".jinja") || path.ends_with(".model") || path == "merges.txt" ||
         path == "vocab.txt";
}

bool has_weights(const fs::path& folder) {
  if (is_file(folder / "model.safetensors") || is_file(folder / "adapter_model.safetensors")) return true;
  const fs::path index = folder / "model.safetensors.index.json";
  if (!is_file(index)) return false;
  const Json content = read_json(index);
  const auto map = content.is_object() ? content.find("weight_map") : content.end();
  if (map == content.end() || !map->is_object()) return true;  // opening it reports the error
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (shard.is_string()) shards.insert(shard.get<std::string>());
  }
  return std::ranges::all_of(shards, [&](const std::string& shard) { return is_file(folder / shard); });
}

enum class Wanted : std::uint8_t { kWholeModel, kConfigAlone };

bool is_complete(const fs::path& snapshot, Wanted wanted) {
  if (wanted == Wanted::kConfigAlone) return is_file(snapshot / "config.json");
  const bool described = is_file(snapshot / "config.json") || is_file(snapshot / "tokenizer.json");
  return described && has_weights(snapshot);
}

bool is_wanted(std::string_view path, Wanted wanted) {
  return wanted == Wanted::kConfigAlone ? path == "config.json" : is_model_file(path);
}

fs::path resolve(std::string_view name, std::string_view revision, Wanted wanted) {
  if (name.empty() || name.find('\0') != std::string_view::npos) {
    throw Error("the model's name is empty or contains a zero byte");
  }
  fs::path local = expand_home(std::string(name));
  if (is_folder(local)) return local;
  if (is_file(local)) throw Error(local.string(), "is a file, not a model folder");
  if (!is_repo_name(name)) {
    throw Error(shown(name), "there is no such model folder", "name one that holds config.json, weights and tokenizer");
  }

  const HubRepo repo{.kind = RepoKind::kModel, .name = std::string(name), .revision = std::string(revision)};
  fs::path snapshot = snapshot_folder(repo);
  const bool is_cached = is_folder(snapshot);
  if (is_cached && (is_offline() || is_complete(snapshot, wanted))) return snapshot;
  if (is_offline() || name.find('/') == std::string_view::npos) {
    throw Error(shown(name),
                text_of("not found: neither the folder ", fs::absolute(local).string(), " nor ", snapshot.string(),
                        is_offline() ? ", and HF_HUB_OFFLINE forbids to download it" : ""),
                "give the path of a model folder, a name such as Qwen/Qwen2.5-0.5B, or set HF_HOME to the cache");
  }
  HubListing listing;
  try {
    listing = list_repo(repo);
  } catch (const Error& error) {
    if (!is_cached) throw;
    log_warning(text_of(error.what(), "; using the files in the cache"));
    return snapshot;
  }
  std::vector<std::string> paths;
  for (const HubFile& file : listing.files) {
    if (is_wanted(file.path, wanted)) paths.push_back(file.path);
  }
  if (paths.empty()) throw Error(shown(name), "the repository on the hub has no model files");
  return download(repo, listing, paths);
}

}  // namespace

fs::path resolve_model(std::string_view name, std::string_view revision) {
  return resolve(name, revision, Wanted::kWholeModel);
}

bool is_model_local(std::string_view name, std::string_view revision) {
  if (is_folder(expand_home(std::string(name)))) return true;
  if (!is_repo_name(name)) return false;
  const HubRepo repo{.kind = RepoKind::kModel, .name = std::string(name), .revision = std::string(revision)};
  const fs::path snapshot = snapshot_folder(repo);
  return is_folder(snapshot) && is_complete(snapshot, Wanted::kWholeModel);
}

fs::path resolve_config(std::string_view name, std::string_view revision) {
  return resolve(name, revision, Wanted::kConfigAlone);
}

}  // namespace hone
