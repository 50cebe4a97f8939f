// Options for pushing a run to the Hugging Face hub, with the names of transformers and open-r1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/options.h"

namespace hone {

// Time and content of pushes: `end` pushes the model after training; `every_save` also pushes the model at each
// checkpoint; `checkpoint` adds its training state in last-checkpoint/; `all_checkpoints` instead adds each checkpoint
// in its own folder.
enum class HubStrategy : std::uint8_t { kEnd, kEverySave, kCheckpoint, kAllCheckpoints };
template <>
inline constexpr EnumTable kEnumTable<HubStrategy>{.names = "end|every_save|checkpoint|all_checkpoints"};

struct HubOptions {
  bool push_to_hub = false;
  std::string hub_model_id;
  HubStrategy hub_strategy = HubStrategy::kEverySave;
  bool hub_always_push = false;
  std::optional<bool> hub_private_repo;
  std::string hub_revision;
  std::string hub_token;
  bool hub_required = true;
  bool push_to_hub_revision = false;
  std::string hub_model_revision = "main";
  bool overwrite_hub_revision = false;
  std::vector<std::string> callbacks;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Hugging Face hub");
    v("push_to_hub", push_to_hub, "Push the model to the hub, as hub_strategy says; hone push does it later");
    v("hub_model_id", hub_model_id, "OWNER/NAME of the repository; unset: output_dir's name, of the token's owner");
    v("hub_strategy", hub_strategy,
      "When to push: after training; also at each checkpoint; with its state in last-checkpoint; or each in its "
      "folder");
    v("hub_always_push", hub_always_push, "Push a checkpoint even if the previous push is not finished, after it");
    v("hub_private_repo", hub_private_repo,
      "Whether a new repository is private; unset: the default of your account, and yes for revisions alone");
    v("hub_revision", hub_revision, "Branch that push_to_hub pushes to; unset: main");
    v("hub_token", hub_token, "Token with write access; unset: HF_TOKEN, or the file of huggingface-cli login");
    v("hub_required", hub_required,
      "Whether a run requires the hub; false: continue if it cannot be reached, and retry at each push");
    v("push_to_hub_revision", push_to_hub_revision, "Push the trained model to the branch hub_model_revision");
    v("hub_model_revision", hub_model_revision,
      "Branch of push_to_hub_revision; for the callback of that name, how the names of its branches begin");
    v("overwrite_hub_revision", overwrite_hub_revision, "Push to hub_model_revision although it holds a model");
    v("callbacks", callbacks, "push_to_hub_revision: each checkpoint to the branch hub_model_revision-step-NNNNNNNNN");
    v.secret("hub_token");
    v.alias("push_to_hub_token", "hub_token");
    v.alias("push_to_hub_model_id", "hub_model_id");
  }

  // Returns true if the callback push_to_hub_revision is named.
  [[nodiscard]] bool pushes_revisions() const;
  // Returns whether a new repository is private. As in open-r1, a repository for branches alone is private unless
  // hub_private_repo says otherwise; nullopt leaves the choice to the account.
  [[nodiscard]] std::optional<bool> makes_private() const {
    return hub_private_repo || push_to_hub ? hub_private_repo : std::optional(true);
  }
  // Returns true if the run pushes anything.
  [[nodiscard]] bool uses_hub() const { return push_to_hub || push_to_hub_revision || pushes_revisions(); }
};

// Checks the options of a run with this output_dir. Throws Error if a callback is unknown or a name is not valid for a
// repository or a branch.
void check_hub_options(const HubOptions& options, const std::string& output_dir, const OptionInput& input);
// Returns hub_model_id, or the last part of output_dir if it is not set. The name may lack an owner.
[[nodiscard]] std::string hub_repo_name(const HubOptions& options, const std::string& output_dir);

}  // namespace hone
