// Pushes to the Hugging Face hub: creates repositories, branches and commits. hub/hub.h downloads them.
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
  HubRepo repo;  // its revision is the branch
  std::vector<UploadFile> files;
  std::string message;
  bool in_background = false;  // log little and show no progress bar
};

struct HubPushed {
  std::string commit;  // hash of the commit; empty if the branch already had all files, so nothing was committed
  std::int64_t bytes_sent = 0;  // bytes of large files; other files are sent within the commit request
};

// Sends requests with one token. All functions throw HubRefusal, Error and Interrupted.
class HubWriter {
 public:
  // Throws Error if HF_HUB_OFFLINE is set, or if the token is empty or malformed.
  explicit HubWriter(std::string token, RetryPolicy patience = {});

  // Returns the name of the token's owner. Throws if the token is invalid or read-only.
  [[nodiscard]] std::string user() const;
  // Returns "NAME" as "USER/NAME".
  [[nodiscard]] std::string full_name(const std::string& name) const;
  // Creates a repository; does nothing if it exists. `is_private`: nullopt uses the default of the owner's settings.
  void create_repo(const HubRepo& repo, std::optional<bool> is_private) const;
  // Creates the branch repo.revision from the repository's first commit; does nothing if it exists.
  void create_branch(const HubRepo& repo) const;
  // Commits the files to the branch. Files that the branch already has are not sent.
  [[nodiscard]] HubPushed push(const HubCommit& commit) const;

 private:
  [[nodiscard]] std::string first_commit(const HubRepo& repo) const;
  [[nodiscard]] bool can_see(const HubRepo& repo) const;

  HubApi api_;
};

}  // namespace hone
