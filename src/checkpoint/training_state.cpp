#include "checkpoint/training_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ranges>
#include <string_view>
#include <utility>

#include "checkpoint/safetensors_header.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kRemoved = ".removed";
constexpr std::string_view kReplaced = ".replaced";
constexpr const char* kStateFile = "training_state.json";
constexpr std::string_view kTensorStem = "optimizer";
constexpr const char* kFormatKey = "hone_format";  // in the metadata of the files of tensors

std::string folder_name(std::int64_t step) { return text_of(kPrefix, step); }
std::string hidden_name(std::int64_t step, std::string_view suffix) { return text_of(".", kPrefix, step, suffix); }

// Parses the N of checkpoint-N. Returns nothing if folder_name() would write the name differently ("checkpoint-007").
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || step < 0 || folder_name(step) != name) return std::nullopt;
  return step;
}

// Parses the N of .checkpoint-N.SUFFIX.
std::optional<std::int64_t> hidden_step_of(std::string_view name, std::string_view suffix) {
  if (!name.starts_with('.') || !name.ends_with(suffix)) return std::nullopt;
  return step_of(name.substr(1, name.size() - 1 - suffix.size()));
}

// Returns a JSON object that maps the relative path of every file in the folder to its size in bytes.
Json file_sizes(const fs::path& folder) {
  std::vector<std::pair<std::string, std::uint64_t>> sizes;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      sizes.emplace_back(entry.path().lexically_relative(folder).string(), entry.file_size());
  }
  std::ranges::sort(sizes);
  Json files = Json::object();
  for (const auto& [name, size] : sizes) files[name] = size;
  return files;
}

void check_files(const fs::path& folder, const Json& files) {
  for (const auto& [name, size] : files.items()) {
    const fs::path path = folder / name;
    std::error_code error;
    const std::uintmax_t found = fs::file_size(path, error);
    if (error) throw Error(path.string(), "is missing from the checkpoint");
    if (!size.is_number_unsigned() || found != size.get<std::uintmax_t>()) {
      throw Error(path.string(), text_of("has ", found, " bytes; the checkpoint was saved with ", size.dump()));
    }
  }
}

// Reads training_state.json and checks that the folder is complete. Throws Error if it is not.
std::shared_ptr<const Json> read_state(const fs::path& folder) {
  const fs::path path = folder / kStateFile;
  if (!is_file(path))
    throw Error(folder.string(), text_of("is not a checkpoint to resume from: it has no ", kStateFile));
  auto state = std::make_shared<const Json>(read_json(path));
  const bool complete = state->is_object() && state->contains("step") && (*state)["step"].is_number_integer() &&
                        state->contains("files") && (*state)["files"].is_object();
  if (!complete) throw Error(path.string(), "lacks \"step\" or \"files\"");
  check_files(folder, (*state)["files"]);
  return state;
}

std::int64_t format_of(const SafetensorsFile& file) {
  const auto found = file.metadata().find(kFormatKey);
  if (found == file.metadata().end()) return 1;
  if (found->second == text_of(kStateFormat)) return kStateFormat;
  throw Error(file.name(),
              text_of("has format ", quoted_name(found->second), " (", kFormatKey,
                      "), this version of hone reads up to ", kStateFormat),
              "resume with the version that saved it");
}

// All files of a checkpoint have the same format.
std::int64_t format_of(const fs::path& checkpoint, const WeightFiles& tensors) {
  if (tensors.empty()) {
    throw Error(checkpoint.string(), text_of("is not a checkpoint to resume from: it has no ", kTensorStem,
                                             ".safetensors and no index of several files"));
  }
  const std::int64_t format = format_of(tensors.files().front());
  for (const SafetensorsFile& file : tensors.files()) {
    if (const std::int64_t other = format_of(file); other != format) {
      throw Error(file.name(), text_of("has format ", other, ", ", tensors.files().front().name(), " has ", format),
                  "copy the checkpoint again: its files are of different runs");
    }
  }
  return format;
}

}  // namespace

bool is_state_file(const std::string& name) { return name == kStateFile || is_name_of_set(name, kTensorStem); }

std::vector<CheckpointFolder> checkpoints_in(const fs::path& output_dir) {
  std::vector<CheckpointFolder> folders;
  if (!is_folder(output_dir)) return folders;
  for (const std::string& name : list_folder(output_dir)) {
    const auto step = step_of(name);
    if (step && is_folder(output_dir / name)) folders.push_back({*step, output_dir / name});
  }
  std::ranges::sort(folders, {}, &CheckpointFolder::step);
  return folders;
}

std::optional<CheckpointFolder> last_good_checkpoint(const fs::path& output_dir) {
  const std::vector<CheckpointFolder> folders = checkpoints_in(output_dir);
  for (const CheckpointFolder& folder : folders | std::views::reverse) {
    try {
      (void)read_state(folder.path);
      return folder;
    } catch (const Error& error) {
      log_warning(text_of("skipping ", folder.path.string(), ": ", error.what()));
    }
  }
  return std::nullopt;
}

TrainingState::TrainingState(const fs::path& checkpoint)
    : json_(read_state(checkpoint)),
      step_((*json_)["step"].get<std::int64_t>()),
      tensors_(checkpoint, kTensorStem),
      format_(format_of(checkpoint, tensors_)) {}

CheckpointStore::Lock::Lock(const fs::path& folder)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  // File systems that do not support locks (some network file systems) stay unlocked.
  if (descriptor_.open() && ::flock(descriptor_.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error(folder.string(), "another run is saving checkpoints here", "set another output_dir or stop that run");
  }
}

CheckpointStore::CheckpointStore(fs::path output_dir)
    : output_dir_((hone::create_directories(output_dir), std::move(output_dir))), lock_(output_dir_) {
  recover();
}

void CheckpointStore::recover() {
  for (const std::string& name : list_folder(output_dir_)) {
    if (const auto step = hidden_step_of(name, kReplaced); step && !is_folder(output_dir_ / folder_name(*step))) {
      rename_path(output_dir_ / name, output_dir_ / folder_name(*step));
    } else if (step || hidden_step_of(name, kPartial) || hidden_step_of(name, kRemoved)) {
      remove_path(output_dir_ / name);
    }
  }
}

fs::path CheckpointStore::save(const CheckpointContent& content) {
  HONE_ASSERT(content.step >= 0, "step ", content.step);
  HONE_ASSERT(content.state.is_object() && !content.state.contains("step") && !content.state.contains("files"),
              content.state.dump());
  HONE_ASSERT(Json::parse(content.state.dump()) == content.state, "a number in the state is not finite");
  const fs::path folder = output_dir_ / folder_name(content.step);
  const fs::path partial = output_dir_ / hidden_name(content.step, kPartial);
  const fs::path replaced = output_dir_ / hidden_name(content.step, kReplaced);

  // Write everything into the partial folder, training_state.json with the list of files last.
  remove_path(partial);
  hone::create_directories(partial);
  if (content.write_model) content.write_model(partial);
  write_weights(partial, content.tensors, content.max_file_bytes, kTensorStem,
                {{"format", "pt"}, {kFormatKey, text_of(kStateFormat)}});
  Json state{{"step", content.step}};
  state.update(content.state);
  state["files"] = file_sizes(partial);
  write_json(partial / kStateFile, state);

  // Sync to disk before renaming, so that a folder named checkpoint-N is complete even after a crash of the machine.
  sync_tree(partial);
  const bool replaces = is_folder(folder);
  if (replaces) {
    remove_path(replaced);
    rename_path(folder, replaced);
  }
  rename_path(partial, folder);
  if (replaces) remove_path(replaced);
  saved_.push_back(content.step);
  return folder;
}

std::vector<std::int64_t> CheckpointStore::whole_steps() const {
  std::vector<std::int64_t> whole;
  for (const CheckpointFolder& folder : checkpoints_in(output_dir_)) {
    try {
      (void)read_state(folder.path);
      whole.push_back(folder.step);
    } catch (const Error&) {
      continue;  // damaged or not written by hone: neither counted nor deleted
    }
  }
  return whole;
}

void CheckpointStore::apply_limit(std::int64_t limit, std::span<const std::int64_t> keep) {
  HONE_ASSERT(limit >= 1, "limit ", limit);
  const std::vector<std::int64_t> whole = whole_steps();
  auto excess = static_cast<std::int64_t>(whole.size()) - limit;
  for (const std::int64_t step : whole) {
    if (excess <= 0) break;
    const bool is_last = !saved_.empty() && step == saved_.back();
    if (is_last || std::ranges::find(keep, step) != keep.end()) continue;
    remove(step);
    --excess;
  }
}

void CheckpointStore::remove_others() {
  for (const std::int64_t step : whole_steps()) {
    if (std::ranges::find(saved_, step) == saved_.end()) remove(step);
  }
}

void CheckpointStore::remove(std::int64_t step) {
  const fs::path removed = output_dir_ / hidden_name(step, kRemoved);
  remove_path(removed);
  rename_path(output_dir_ / folder_name(step), removed);
  remove_path(removed);
}

}  // namespace hone
