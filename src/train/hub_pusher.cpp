#include "train/hub_pusher.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "checkpoint/training_state.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/yaml.h"
#include "hub/hub.h"
#include "train/trainer.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr RetryPolicy kBeforeTraining{.tries = 3, .first_pause = std::chrono::milliseconds(250)};

bool is_pushed(const std::string& name, bool with_state) {
  if (name.starts_with('.') || name.starts_with('_') || name.starts_with("nonfinite-step-")) return false;
  return !name.ends_with(".partial") && (with_state || !is_state_file(name));
}

// Returns the flags that turn off all pushes.
std::string off_switches(const HubOptions& options) {
  std::vector<std::string> flags;
  if (options.push_to_hub) flags.emplace_back("--push_to_hub false");
  if (options.push_to_hub_revision) flags.emplace_back("--push_to_hub_revision false");
  if (options.pushes_revisions()) flags.emplace_back("--callbacks none");
  return join(flags, " ");
}

std::string key_of(const HubOptions& options) {
  return options.push_to_hub ? "push_to_hub" : options.push_to_hub_revision ? "push_to_hub_revision" : "callbacks";
}

// Throws Error if the branch holds a model already, unless overwrite_hub_revision is set.
void check_branch(const HubOptions& options, const std::string& name) {
  if (!options.push_to_hub_revision || options.overwrite_hub_revision) return;
  const HubRepo branch{.name = name, .revision = options.hub_model_revision};
  HubListing listing;
  try {
    listing = list_repo(branch);
  } catch (const Error&) {
    return;  // the branch does not exist
  }
  if (std::ranges::find(listing.files, "README.md", &HubFile::path) == listing.files.end()) return;
  throw Error("hub_model_revision", text_of("the branch ", branch.revision, " of ", name, " holds a model already"),
              "--overwrite_hub_revision pushes to it all the same");
}

std::string step_branch(const std::string& revision, std::int64_t step) {
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%09lld", static_cast<long long>(step));
  return text_of(revision, "-step-", number.data());
}

}  // namespace

std::vector<UploadFile> model_files(const fs::path& folder, bool with_state) {
  std::vector<UploadFile> files;
  for (const std::string& name : list_folder(folder)) {
    if (is_file(folder / name) && is_pushed(name, with_state)) files.emplace_back(name, folder / name);
  }
  const fs::path runs = folder / "runs";  // TensorBoard files
  if (is_folder(runs)) {
    for (const std::string& name : list_folder(runs)) {
      if (is_file(runs / name) && is_pushed(name, false)) files.emplace_back("runs/" + name, runs / name);
    }
  }
  return files;
}

std::string token_of(const HubOptions& options) {
  const std::string given(trim(options.hub_token));
  return given.empty() ? hub_token() : given;
}

void check_hub(const HubOptions& options, const std::string& output_dir, bool dry_run, const OptionInput& input) {
  if (!options.uses_hub()) return;
  const std::string place = input.place_of(key_of(options));
  try {
    const HubWriter writer(token_of(options), kBeforeTraining);
    std::string name = hub_repo_name(options, output_dir);
    const std::string user = writer.user();
    if (name.find('/') == std::string::npos) name = text_of(user, "/", name);
    check_branch(options, name);
    if (!dry_run) writer.create_repo({.name = name}, options.makes_private());
    log_info(text_of("pushes to ", hub_endpoint(), "/", name));
  } catch (const Error& error) {
    std::string what = error.what();
    constexpr std::string_view kWhere = "push to the hub: ";
    if (what.starts_with(kWhere)) what = what.substr(kWhere.size());
    const std::string off = text_of(
        off_switches(options), " trains without pushing, --hub_required false trains and tries again at each push");
    // Adds the advice to turn pushing off after the advice of the error itself, if it has one: "... (FIX; OFF)".
    const std::size_t fix = what.ends_with(')') ? what.rfind(" (") : std::string::npos;
    const bool has_fix = fix != std::string::npos && what.find(' ', fix + 2) != std::string::npos;
    if (options.hub_required && !has_fix) throw Error(place, what, off);
    if (options.hub_required) throw Error(text_of(place, ": ", what.substr(0, what.size() - 1), "; ", off, ")"));
    log_warning(text_of(place, ": ", what, "; the run continues, and each push tries again"));
  }
}

HubPusher::HubPusher(const HubOptions& options, std::string command, std::string defaults, RetryPolicy patience)
    : options_(options), command_(std::move(command)), defaults_(std::move(defaults)), patience_(patience) {}

HubPusher::~HubPusher() {
  if (!interrupted()) wait();
  worker_.request_stop();
  if (worker_.joinable()) worker_.join();
  for (const Job& job : jobs_)
    log_warning(text_of("the push of ", job.title, " did not start (later: ", later(job), ")"));
}

void HubPusher::write_card(const RunView& run) const {
  const Json defaults = parse_json(defaults_, "defaults");
  write_model_card(run.output_dir, {.name = name_,
                                    .command = command_,
                                    .options = run.options,
                                    .defaults = defaults,
                                    .is_adapter = run.subject.model.whole().adapter() != nullptr});
}

MetricValues HubPusher::saved(const RunView& run, const fs::path& checkpoint) {
  if (!options_.uses_hub()) return {};
  if (name_.empty()) name_ = hub_repo_name(options_, run.output_dir.string());
  try {
    push_checkpoint(run, checkpoint);
  } catch (const Error& error) {
    log_warning(text_of("step ", run.step, " is not pushed: ", error.what()));
  }
  return {};
}

void HubPusher::push_checkpoint(const RunView& run, const fs::path& checkpoint) {
  write_card(run);
  // Files are opened when they are queued, so a checkpoint that is deleted before its push can still be read.
  const UploadFile readme("README.md", run.output_dir / "README.md");
  const std::string title = text_of("step ", run.step);
  std::string busy;
  {
    const std::scoped_lock lock(mutex_);
    busy = !current_.empty() ? current_ : jobs_.empty() ? "" : jobs_.front().title;
  }
  if (options_.push_to_hub && options_.hub_strategy != HubStrategy::kEnd) {
    if (!busy.empty() && !options_.hub_always_push) {
      log_info(text_of(title, " is not pushed: the push of ", busy,
                       " is still under way (hub_always_push: true pushes it afterwards)"));
    } else {
      std::vector<UploadFile> files = model_files(checkpoint);
      std::erase_if(files, [](const UploadFile& file) { return file.path() == "README.md"; });
      files.push_back(readme);
      for (const UploadFile& file : model_files(run.output_dir)) {  // metrics and TensorBoard files of the run
        if (file.path() == "metrics.jsonl" || file.path().starts_with("runs/")) files.push_back(file);
      }
      if (options_.hub_strategy != HubStrategy::kEverySave) {
        const bool all = options_.hub_strategy == HubStrategy::kAllCheckpoints;
        const std::string folder = all ? checkpoint.filename().string() : "last-checkpoint";
        for (const UploadFile& file : model_files(checkpoint, true))
          files.push_back(file.at(folder + "/" + file.path()));
      }
      enqueue({.title = title,
               .folder = checkpoint,
               .revision = options_.hub_revision,
               .files = std::move(files),
               .message = text_of("Training in progress, ", title)});
    }
  }
  if (options_.pushes_revisions()) {
    const std::string branch = step_branch(options_.hub_model_revision, run.step);
    std::vector<UploadFile> files = model_files(checkpoint);
    std::erase_if(files, [](const UploadFile& file) { return file.path() == "README.md"; });
    files.push_back(readme);
    enqueue({.title = text_of(title, " to the branch ", branch),
             .folder = checkpoint,
             .revision = branch,
             .files = std::move(files),
             .message = text_of("Add ", branch, " checkpoint")});
  }
}

void HubPusher::enqueue(Job job) {
  const std::scoped_lock lock(mutex_);
  jobs_.push_back(std::move(job));
  if (!worker_.joinable()) worker_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  changed_.notify_all();
}

void HubPusher::work(const std::stop_token& stop) {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return !jobs_.empty(); }) || stop.stop_requested()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      current_ = job.title;
    }
    try {
      push(job);
    } catch (const Interrupted&) {
      log_warning(text_of("the push of ", job.title, " was interrupted (later: ", later(job), ")"));
    } catch (const std::exception& error) {
      log_warning(text_of("the push of ", job.title, " failed: ", error.what(),
                          " (training continues; later: ", later(job), ")"));
    }
    job = {};  // closes its files, so that the space of a deleted checkpoint is freed
    const std::scoped_lock lock(mutex_);
    current_.clear();
    changed_.notify_all();
  }
}

void HubPusher::wait() {
  std::unique_lock lock(mutex_);
  if (current_.empty() && jobs_.empty()) return;
  log_info(text_of("waiting for the push of ", current_.empty() ? jobs_.front().title : current_));
  const auto is_done = [&] { return current_.empty() && jobs_.empty(); };
  while (!changed_.wait_for(lock, std::chrono::milliseconds(100), is_done)) {
    if (interrupted()) return;
  }
}

// Creates the repository before the first successful push. Called by the pushing thread only.
void HubPusher::ensure_repo(const HubWriter& writer) {
  if (is_ready_) return;
  full_name_ = writer.full_name(name_);
  writer.create_repo({.name = full_name_}, options_.makes_private());
  is_ready_ = true;
}

void HubPusher::push(const Job& job) {
  const auto start = std::chrono::steady_clock::now();
  const HubWriter writer(token_of(options_), patience_);
  ensure_repo(writer);
  HubRepo repo{.name = full_name_};
  if (!job.revision.empty()) repo.revision = job.revision;
  if (repo.revision != "main") writer.create_branch(repo);
  std::uint64_t bytes = 0;
  for (const UploadFile& file : job.files) bytes += static_cast<std::uint64_t>(file.size());
  const std::string where = text_of(repo.name, repo.revision == "main" ? "" : " " + repo.revision);
  log_info(text_of("pushing ", job.title, " to ", where, ": ", job.files.size(), " files, ", format_bytes(bytes)));
  const HubPushed pushed =
      writer.push({.repo = repo, .files = job.files, .message = job.message, .in_background = job.is_background});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log_info(text_of("pushed ", job.title, " to ", where,
                   pushed.commit.empty() ? ", which had it" : ": commit " + pushed.commit.substr(0, 8), ", ",
                   format_bytes(static_cast<std::uint64_t>(pushed.bytes_sent)), " of large files sent in ",
                   format_duration(seconds)));
}

std::string HubPusher::later(const Job& job) const {
  // The checkpoint may have been deleted in the meantime; the folder of the run still exists.
  const fs::path folder = is_folder(job.folder) ? job.folder : job.folder.parent_path();
  std::string command = text_of("hone push ", folder.string(), " ", full_name_.empty() ? name_ : full_name_);
  if (!job.revision.empty()) command += " --hub_revision " + job.revision;
  return command;
}

void HubPusher::finished(const RunView& run) {
  if (!options_.uses_hub()) return;
  if (name_.empty()) name_ = hub_repo_name(options_, run.output_dir.string());
  write_card(run);
  wait();
  worker_.request_stop();
  if (worker_.joinable()) worker_.join();
  std::vector<Job> jobs;
  const auto add = [&](const std::string& revision, const std::string& message) {
    jobs.push_back({.title = "the trained model",
                    .folder = run.output_dir,
                    .revision = revision,
                    .files = model_files(run.output_dir),
                    .message = message,
                    .is_background = false});
  };
  if (options_.push_to_hub) add(options_.hub_revision, "End of training");
  if (options_.push_to_hub_revision) {
    add(options_.hub_model_revision, text_of("Add ", options_.hub_model_revision, " checkpoint"));
  }
  for (const Job& job : jobs) {
    try {
      throw_if_interrupted();
      push(job);
    } catch (const Interrupted&) {
      log_warning(text_of("the push of ", job.title, " was interrupted; it is saved (later: ", later(job), ")"));
      throw;
    } catch (const Error& error) {
      const std::string what = text_of("the push of ", job.title, " failed, but it is saved: ", error.what());
      if (options_.hub_required) throw Error(what + " (later: " + later(job) + ")");
      log_warning(text_of(what, " (later: ", later(job), ")"));
    }
  }
}

}  // namespace hone
