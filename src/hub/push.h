// Pushes to the Hugging Face hub: repositories, branches, commits. What is pushed can be downloaded with hub/hub.h.
// Source: https://huggingface.co/docs/hub/api, and the requests of huggingface_hub
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hub/cache.h"
#include "hub/hub_api.h"
#include "hub/upload_file.h"

namespace hone {

struct HubCommit {
  HubRepo repo;  // revision: the branch
  std::vector<UploadFile> files;
  std::string message;
  bool in_background = false;  // says little
};

struct HubPushed {
  std::string commit;           // its hash; empty where the branch had all files already, and nothing was committed
  std::int64_t bytes_sent = 0;  // of large files; others go with the commit
};

// Makes requests with one token. All throw HubRefusal, Error and Interrupted.
class HubWriter {
 public:
  // Throws Error where HF_HUB_OFFLINE is set or the token is empty or no token.
  explicit HubWriter(std::string token, HubPatience patience = {});

  // The name of the token's owner. Throws where the token is refused or may only read.
  [[nodiscard]] std::string user() const;
  // "NAME" as "USER/NAME".
  [[nodiscard]] std::string full_name(const std::string& name) const;
  // Nothing happens where it exists. `is_private`: unset is as the owner's settings say.
  void create_repo(const HubRepo& repo, std::optional<bool> is_private) const;
  // The branch repo.revision, from the repository's first commit where it does not exist.
  void create_branch(const HubRepo& repo) const;
  [[nodiscard]] HubPushed push(const HubCommit& commit) const;

 private:
  [[nodiscard]] std::string first_commit(const HubRepo& repo) const;
  [[nodiscard]] bool can_see(const HubRepo& repo) const;

  HubApi api_;
};

}  // namespace hone
