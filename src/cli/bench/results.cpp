#include "cli/bench/results.h"

#include <algorithm>
#include <ctime>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kCommitDigits = 40;

std::string first_line(const fs::path& path) {
  if (!is_file(path)) return {};
  return std::string(trim(split(read_file(path), '\n')[0]));
}

bool is_commit(std::string_view text) {
  return text.size() == kCommitDigits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// Folder with the data of git: .git itself, or the folder that the file .git of a worktree names.
fs::path git_folder(const fs::path& git) {
  if (is_folder(git)) return git;
  const std::string line = first_line(git);
  constexpr std::string_view kPrefix = "gitdir: ";
  return line.starts_with(kPrefix) ? fs::path(line.substr(kPrefix.size())) : fs::path();
}

// Commit that HEAD names in a folder of git's data, directly or through a reference, loose or packed.
std::string commit_in(const fs::path& folder) {
  const std::string head = first_line(folder / "HEAD");
  constexpr std::string_view kReference = "ref: ";
  if (!head.starts_with(kReference)) return is_commit(head) ? head : "";
  const std::string name = head.substr(kReference.size());
  const std::string shared = first_line(folder / "commondir");
  for (const fs::path& place : {folder, shared.empty() ? folder : folder / shared}) {
    if (const std::string commit = first_line(place / name); is_commit(commit)) return commit;
    if (!is_file(place / "packed-refs")) continue;
    for (const std::string& line : split(read_file(place / "packed-refs"), '\n')) {
      if (line.size() > kCommitDigits && line.substr(kCommitDigits) == " " + name) return line.substr(0, kCommitDigits);
    }
  }
  return {};
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

std::string commit_of(fs::path folder) {
  std::error_code error;
  folder = fs::absolute(folder, error);
  for (;; folder = folder.parent_path()) {
    if (const fs::path git = git_folder(folder / ".git"); !git.empty() && is_folder(git)) return commit_in(git);
    if (folder == folder.parent_path()) return {};
  }
}

std::string command_line(std::string_view name, std::span<const std::string> arguments) {
  std::string line = text_of("hone bench ", name);
  for (const std::string& argument : arguments) line += " " + argument;
  return line;
}

void write_results(const fs::path& path, std::span<const ResultRow> rows, const std::string& machine,
                   const std::string& command) {
  const std::string commit = commit_of(".");
  const std::string date = utc_now().substr(0, 10);
  std::string text = "[\n";
  for (const ResultRow& row : rows) {
    const Json line = {{"what", row.what},   {"shape", row.shape}, {"figure", row.figure}, {"unit", row.unit},
                       {"machine", machine}, {"command", command}, {"commit", commit},     {"date", date}};
    text += (text.size() > 2 ? ",\n" : "") + line.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  write_file(path, text + "\n]\n");
}

}  // namespace hone
