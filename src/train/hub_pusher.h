// Pushes checkpoints and the trained model to the Hugging Face hub, as transformers' Trainer and open-r1's callback do.
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

// Returns the files to push from a folder that a run has written, sorted: those directly in it and in its subfolder
// runs (TensorBoard's), without hidden files, partial files, names that begin with "_" or "nonfinite-step-" and, unless
// with_state is set, the training state of a checkpoint. Throws Error if the folder cannot be read.
[[nodiscard]] std::vector<UploadFile> model_files(const std::filesystem::path& folder, bool with_state = false);

// Returns hub_token or, if it is not set, the token of the environment or of the hub's cache.
[[nodiscard]] std::string token_of(const HubOptions& options);

// Checks before a run that it will be able to push: the token is valid and has write access, the repository exists
// (creates it, except in a dry run) and the branch holds no model. Throws Error that names the keys which turn pushing
// off; logs a warning instead if hub_required is false.
void check_hub(const HubOptions& options, const std::string& output_dir, bool dry_run, const OptionInput& input);

// Pushes checkpoints in a background thread, one after another, and the trained model in the calling thread. A failed
// push is logged with the command that pushes later; it never ends the training.
class HubPusher final : public RunObserver {
 public:
  // defaults: the default options of the command as JSON (ModelCard::defaults).
  HubPusher(const HubOptions& options, std::string command, std::string defaults, RetryPolicy patience = {});
  HubPusher(const HubPusher&) = delete;
  HubPusher& operator=(const HubPusher&) = delete;
  // Waits for queued pushes, except after Ctrl+C.
  ~HubPusher() override;

  MetricValues saved(const RunView& run, const std::filesystem::path& checkpoint) override;
  // Throws Error if the model cannot be pushed and hub_required is true.
  void finished(const RunView& run) override;

 private:
  struct Job {
    std::string title;             // "step 500"
    std::filesystem::path folder;  // argument of `hone push` that pushes the same
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
  RetryPolicy patience_;
  std::string name_;       // name of the repository, possibly without its owner
  std::string full_name_;  // name with its owner, set by the first push; only the pushing thread reads it
  bool is_ready_ = false;  // the repository exists; used by the pushing thread only
  std::mutex mutex_;       // guards jobs_ and current_
  std::condition_variable_any changed_;
  std::deque<Job> jobs_;
  std::string current_;  // title of the running job; empty: none
  std::jthread worker_;  // starts with the first job
};

}  // namespace hone
