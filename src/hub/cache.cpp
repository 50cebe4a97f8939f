#include "hub/cache.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"
#include "core/yaml.h"
#include "system/cache_folder.h"
#include "system/process.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

bool is_plain_part(std::string_view part) {
  const bool letters = std::ranges::all_of(part, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
  return letters && !part.empty() && part.front() != '.' && part.front() != '-';
}

}  // namespace

bool environment_flag(const char* name) {
  const std::string value = environment_variable(name);
  return value == "1" || yaml_boolean(value) == true;
}

fs::path hub_home() {
  if (const auto home = environment_variable("HF_HOME"); !home.empty()) return expand_home(home);
  if (const auto cache = environment_variable("XDG_CACHE_HOME"); !cache.empty())
    return expand_home(cache) / "huggingface";
  return expand_home("~/.cache/huggingface");
}

fs::path hub_cache() {
  const auto cache = environment_variable("HF_HUB_CACHE");
  return cache.empty() ? hub_home() / "hub" : expand_home(cache);
}

fs::path datasets_cache() {
  const auto cache = environment_variable("HF_DATASETS_CACHE");
  return cache.empty() ? hub_home() / "datasets" : expand_home(cache);
}

bool is_offline() {
  return environment_flag("HF_HUB_OFFLINE") || environment_flag("TRANSFORMERS_OFFLINE") ||
         environment_flag("HF_DATASETS_OFFLINE");
}

std::string hub_endpoint() {
  std::string endpoint = environment_variable("HF_ENDPOINT");
  if (endpoint.empty()) endpoint = "https://huggingface.co";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint;
}

std::string hub_token() {
  std::string token(trim(environment_variable("HF_TOKEN")));
  if (!token.empty()) return token;
  const std::string named = environment_variable("HF_TOKEN_PATH");
  const fs::path path = named.empty() ? hub_home() / "token" : expand_home(named);
  return is_file(path) ? std::string(trim(read_file(path))) : std::string();
}

bool is_repo_name(std::string_view name) {
  const std::vector<std::string> parts = split(name, '/');
  return parts.size() <= 2 && std::ranges::all_of(parts, is_plain_part);
}

void check_revision(const HubRepo& repo) {
  const std::vector<std::string> parts = split(repo.revision, '/');
  if (!repo.revision.empty() && std::ranges::all_of(parts, is_plain_part)) return;
  throw Error(shown(repo.name),
              text_of("the revision ", shown(repo.revision), " is not the name of a branch, tag or commit"));
}

fs::path repo_folder(const HubRepo& repo) {
  std::string folder = repo.kind == RepoKind::kModel ? "models--" : "datasets--";
  for (const char c : repo.name) folder += c == '/' ? "--" : std::string(1, c);
  return hub_cache() / folder;
}

fs::path snapshot_folder(const HubRepo& repo) {
  check_revision(repo);
  const fs::path folder = repo_folder(repo);
  const fs::path reference = folder / "refs" / repo.revision;
  if (!is_file(reference)) return folder / "snapshots" / repo.revision;
  const std::string content = read_file(reference);
  const std::string_view commit = trim(content);
  if (!is_plain_part(commit)) throw Error(reference.string(), "does not name a commit");
  return folder / "snapshots" / commit;
}

}  // namespace hone
