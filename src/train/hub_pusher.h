// Pushes of a run to the Hugging Face hub, as transformers' Trainer and open-r1's callback make them.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "hub/push.h"
#include "train/hub_options.h"
#include "train/model_card.h"
#include "train/run_observer.h"

namespace hone {

// The files that are a model's of a folder that a run has written: what lies directly in it and the folder runs, but
// for hidden files, a checkpoint's state and what begins with "_" or "nonfinite-step-". Sorted. `with_state`: a
// checkpoint's state too. Throws Error.
[[nodiscard]] std::vector<UploadFile> model_files(const std::filesystem::path& folder, bool with_state = false);

// hub_token, or what the environment or the cache has.
[[nodiscard]] std::string token_of(const HubOptions& options);

// Makes sure, before a run, that it can push: a token that is valid and may write, the repository (which is made unless
// at a dry run), the branch not taken. Throws Error with one line that names the keys which turn pushing off; where
// hub_required is false, warns instead.
void check_hub(const HubOptions& options, const std::string& output_dir, bool dry_run, const OptionInput& input);

// Checkpoints are pushed in the background of training, one after another; the model, when it is trained, in the
// foreground. A push that fails is said in a line, with the command that pushes later; it never ends training.
class HubPusher final : public RunObserver {
 public:
  // `defaults`: the command's, JSON (ModelCard).
  HubPusher(const HubOptions& options, std::string command, std::string defaults, HubPatience patience = {});
  HubPusher(const HubPusher&) = delete;
  HubPusher& operator=(const HubPusher&) = delete;
  // Waits for pushes that have begun, unless Ctrl+C has ended them.
  ~HubPusher() override;

  MetricValues saved(const RunView& run, const std::filesystem::path& checkpoint) override;
  // Throws Error where the model could not be pushed and hub_required is true.
  void finished(const RunView& run) override;

 private:
  struct Job {
    std::string title;             // "step 500"
    std::filesystem::path folder;  // what `hone push` would push
    std::string revision;          // empty: main
    std::vector<UploadFile> files;
    std::string message;
    bool is_background = true;
  };

  void push_checkpoint(const RunView& run, const std::filesystem::path& checkpoint);
  void enqueue(Job job);
  void work(const std::stop_token& stop);
  void wait();
  void push(const Job& job);
  void ensure_repo(const HubWriter& writer);
  [[nodiscard]] std::string later(const Job& job) const;
  void write_card(const RunView& run) const;

  HubOptions options_;
  std::string command_;
  std::string defaults_;  // JSON
  HubPatience patience_;
  std::string name_;       // of the repository, perhaps without its owner
  std::string full_name_;  // with its owner, once a push has asked for it: seen by the thread that pushes alone
  bool is_ready_ = false;  // the repository is there
  std::mutex mutex_;       // of the jobs
  std::condition_variable_any changed_;
  std::deque<Job> jobs_;
  std::string current_;  // title of the job under way; empty: none
  std::jthread worker_;  // starts with the first job
};

}  // namespace hone
