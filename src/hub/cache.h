// Locates Hugging Face's caches on disk, and reads the settings of its libraries.
// Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace hone {

enum class RepoKind : std::uint8_t { kModel, kDataset };

struct HubRepo {
  RepoKind kind = RepoKind::kModel;
  std::string name;  // "NAME" or "ORG/NAME"
  std::string revision = "main";
};

// True for 1, true, yes, on, as Hugging Face's libraries read flags.
[[nodiscard]] bool environment_flag(const char* name);

// Hugging Face's home folder: HF_HOME, otherwise huggingface/ in XDG_CACHE_HOME or ~/.cache.
[[nodiscard]] std::filesystem::path hub_home();
// The hub's cache folder: HF_HUB_CACHE, otherwise hub/ in hub_home().
[[nodiscard]] std::filesystem::path hub_cache();
// The datasets library's cache folder: HF_DATASETS_CACHE, otherwise datasets/ in hub_home().
[[nodiscard]] std::filesystem::path datasets_cache();
// Returns true if HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE or HF_DATASETS_OFFLINE is set.
[[nodiscard]] bool is_offline();
// URL of the hub: HF_ENDPOINT without a trailing slash, or https://huggingface.co.
[[nodiscard]] std::string hub_endpoint();
// Access token: HF_TOKEN, otherwise the content of the file HF_TOKEN_PATH or of `token` in hub_home(); empty if there
// is none.
[[nodiscard]] std::string hub_token();

[[nodiscard]] bool is_repo_name(std::string_view name);
// Throws Error if the revision cannot be the name of a branch, tag or commit.
void check_revision(const HubRepo& repo);
// Returns the folder of a repository in the cache, which may not exist.
[[nodiscard]] std::filesystem::path repo_folder(const HubRepo& repo);
// Returns the folder of the revision's snapshot, which may not exist. The snapshot is that of the commit that refs/
// stores for the revision, or of the revision itself. Throws Error if the file in refs/ does not contain a commit.
[[nodiscard]] std::filesystem::path snapshot_folder(const HubRepo& repo);

}  // namespace hone
