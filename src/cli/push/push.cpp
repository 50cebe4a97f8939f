// hone push: uploads a model's folder to the Hugging Face hub.
#include <cstdio>
#include <filesystem>

#include "cli/registry.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/strings.h"
#include "train/hub_pusher.h"

namespace hone {

template <>
inline constexpr EnumTable kEnumTable<RepoKind>{.names = "model|dataset"};

namespace {

struct PushOptions {
  std::string hub_revision = "main";
  std::optional<bool> hub_private_repo;
  std::string hub_token;
  RepoKind repo_type = RepoKind::kModel;
  std::string commit_message;
  bool training_state = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v("hub_revision", hub_revision, "Branch to push to; a missing branch starts at the repository's first commit");
    v("hub_private_repo", hub_private_repo, "Make a new repository private; unset: the default of your account");
    v("hub_token", hub_token, "Token with write access; unset: HF_TOKEN, or the file of huggingface-cli login");
    v("repo_type", repo_type, "Kind of the repository");
    v("commit_message", commit_message, "Message of the commit; unset: Upload FOLDER");
    v("training_state", training_state, "Also push the optimizer and trainer state of a checkpoint");
    v.secret("hub_token");
  }
};

int run(const PushOptions& options, const OptionInput& input) {
  if (input.positionals.size() != 2) {
    throw Error("hone push",
                text_of("expected a folder and a repository, saw ", input.positionals.size(), " arguments"),
                "hone push FOLDER OWNER/NAME");
  }
  const std::filesystem::path folder = input.positionals[0];
  if (!is_folder(folder)) throw Error(folder.string(), "is not a folder");
  if (!is_repo_name(input.positionals[1])) {
    throw Error("hone push", text_of("'", input.positionals[1], "' is not a valid repository name"),
                "OWNER/NAME, with letters, digits, '-', '_' and '.'");
  }
  const std::vector<UploadFile> files = model_files(folder, options.training_state);
  if (files.empty()) throw Error(folder.string(), "holds no files to push");
  catch_interrupts();
  const HubWriter writer(token_of({.hub_token = options.hub_token}));
  HubRepo repo{.kind = options.repo_type, .name = input.positionals[1], .revision = options.hub_revision};
  check_revision(repo);
  repo.name = writer.full_name(repo.name);
  writer.create_repo(repo, options.hub_private_repo);
  if (repo.revision != "main") writer.create_branch(repo);
  const std::string name = std::filesystem::absolute(folder).lexically_normal().filename().string();
  const HubPushed pushed =
      writer.push({.repo = repo,
                   .files = files,
                   .message = options.commit_message.empty() ? text_of("Upload ", name) : options.commit_message});
  const std::string url = text_of(hub_endpoint(), repo.kind == RepoKind::kModel ? "/" : "/datasets/", repo.name,
                                  repo.revision == "main" ? "" : "/tree/" + repo.revision);
  log_info(pushed.commit.empty()
               ? text_of(url, " already has all ", files.size(), " files")
               : text_of("pushed ", files.size(), " files to ", url, ": commit ", pushed.commit.substr(0, 8), ", ",
                         format_bytes(static_cast<std::uint64_t>(pushed.bytes_sent)), " of large files sent"));
  return 0;
}

}  // namespace

void register_push(CommandRegistry& registry) {
  registry.add(make_command<PushOptions>(
      {.name = "push",
       .summary = "Push a model's folder to the Hugging Face hub",
       .positionals = "FOLDER REPOSITORY",
       .details = "Files that the hub already has are not sent again, so after an interruption the same command\n"
                  "resumes. HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE apply as for downloads.\n"},
      run));
}

}  // namespace hone
