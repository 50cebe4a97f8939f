// Where Hugging Face's tools keep downloaded models.
// Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "checkpoint/model_directory.h"
#include "checkpoint/safetensors_header.h"
#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path expand_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return environment("HOME") + path.substr(1);
}

fs::path hub_cache() {
  if (const auto cache = environment("HF_HUB_CACHE"); !cache.empty()) return expand_home(cache);
  if (const auto home = environment("HF_HOME"); !home.empty()) return expand_home(home) / "hub";
  if (const auto cache = environment("XDG_CACHE_HOME"); !cache.empty()) {
    return expand_home(cache) / "huggingface" / "hub";
  }
  return expand_home("~/.cache/huggingface/hub");
}

bool is_plain_part(std::string_view part) {
  const bool letters = std::ranges::all_of(part, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
  return letters && !part.empty() && part.front() != '.' && part.front() != '-';
}

// "NAME" or "ORG/NAME", as the hub allows them.
bool is_model_name(std::string_view name) {
  const std::vector<std::string> parts = split(name, '/');
  return parts.size() <= 2 && std::ranges::all_of(parts, is_plain_part);
}

std::string cache_folder_name(std::string_view name) {
  std::string folder = "models--";
  for (const char c : name) folder += c == '/' ? "--" : std::string(1, c);
  return folder;
}

}  // namespace

fs::path resolve_model(std::string_view name, std::string_view revision) {
  if (name.empty() || name.find('\0') != std::string_view::npos) {
    throw Error("the model's name is empty, or holds a zero byte");
  }
  fs::path local = expand_home(std::string(name));
  if (is_folder(local)) return local;
  if (is_file(local)) throw Error(local.string(), "is a file, not a model folder");
  if (!is_model_name(name)) {
    throw Error(quoted_name(name), "there is no such model folder",
                "name one that holds config.json, weights and tokenizer");
  }

  const std::vector<std::string> revision_parts = split(revision, '/');
  if (revision.empty() || !std::ranges::all_of(revision_parts, is_plain_part)) {
    throw Error(quoted_name(name),
                text_of("the revision ", quoted_name(revision), " is not the name of a branch, tag or commit"));
  }
  const fs::path cached = hub_cache() / cache_folder_name(name);
  fs::path snapshot = cached / "snapshots" / revision;
  if (const fs::path reference = cached / "refs" / revision; is_file(reference)) {
    const std::string content = read_file(reference);
    const std::string_view commit = trim(content);
    if (!is_plain_part(commit)) throw Error(reference.string(), "does not name a commit");
    snapshot = cached / "snapshots" / commit;
  }
  if (is_folder(snapshot)) return snapshot;
  throw Error(quoted_name(name),
              text_of("not found: neither the folder ", fs::absolute(local).string(), " nor ", snapshot.string()),
              "give the path of a model folder, or set HF_HOME to the cache that holds it");
}

}  // namespace hone
