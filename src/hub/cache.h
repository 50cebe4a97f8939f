// Hugging Face's caches on disk.
// Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace hone {

enum class RepoKind : std::uint8_t { model, dataset };

struct HubRepo {
  RepoKind kind = RepoKind::model;
  std::string name;  // "NAME" or "ORG/NAME"
  std::string revision = "main";
};

[[nodiscard]] bool environment_flag(const char* name);  // as Hugging Face's libraries read them: 1, true, yes, on

// HF_HOME, or huggingface/ in XDG_CACHE_HOME or in ~/.cache.
[[nodiscard]] std::filesystem::path hub_home();
// HF_HUB_CACHE, or hub/ there.
[[nodiscard]] std::filesystem::path hub_cache();
// HF_DATASETS_CACHE, or datasets/ there.
[[nodiscard]] std::filesystem::path datasets_cache();
// HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE or HF_DATASETS_OFFLINE.
[[nodiscard]] bool is_offline();
// HF_ENDPOINT, without a slash at its end.
[[nodiscard]] std::string hub_endpoint();
// HF_TOKEN, or what HF_TOKEN_PATH or the file `token` in hub_home() holds; empty where there is none.
[[nodiscard]] std::string hub_token();

[[nodiscard]] bool is_repo_name(std::string_view name);
// Throws Error where the revision cannot be the name of a branch, tag or commit.
void check_revision(const HubRepo& repo);
// The folder of a repository in the cache, whether it is there or not.
[[nodiscard]] std::filesystem::path repo_folder(const HubRepo& repo);
// Where the snapshot of the revision is or would be: that of the commit which refs/ names, or of the revision itself.
// Throws Error where refs/ names none.
[[nodiscard]] std::filesystem::path snapshot_folder(const HubRepo& repo);

}  // namespace hone
