#include "data/dataset.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "data/data_files.h"
#include "hub/hub.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

// Returns true for a name with a slash that neither is nor looks like a local path.
bool is_on_hub(const std::string& name) {
  return !is_local_dataset(name) && name.find('/') != std::string::npos && is_repo_name(name) && !is_data_path(name);
}

HubRepo repo_of(const DatasetName& dataset) {
  return {.kind = RepoKind::kDataset, .name = dataset.name, .revision = dataset.revision};
}

// Parses a shard name "...-00001-of-00007": returns the text before the shard's number and the number of shards.
std::optional<std::pair<std::string, std::size_t>> shards_of(const std::string& path) {
  constexpr std::size_t kDigits = 5;
  const std::size_t at = path.rfind("-of-");
  if (at == std::string::npos || at < kDigits + 1 || path.size() < at + 4 + kDigits) return std::nullopt;
  const std::string count = path.substr(at + 4, kDigits);
  if (!std::ranges::all_of(count, [](unsigned char c) { return std::isdigit(c) != 0; })) return std::nullopt;
  return std::pair(path.substr(0, at - kDigits), static_cast<std::size_t>(std::stoul(count)));
}

bool has_all_shards(const std::vector<std::string>& paths) {
  return std::ranges::all_of(paths, [&](const std::string& path) {
    const auto shards = shards_of(path);
    if (!shards) return true;
    const auto like_it =
        std::ranges::count_if(paths, [&](const std::string& other) { return shards_of(other) == shards; });
    return static_cast<std::size_t>(like_it) == shards->second;
  });
}

// The part of a dataset that decides its splits: the names of its files and its README.md.
struct Contents {
  std::vector<std::string> paths;
  std::string readme;

  [[nodiscard]] DataFilesQuery query(const DatasetName& dataset) const {
    return {.paths = paths, .readme = readme, .config = dataset.config, .name = dataset.name};
  }
};

Contents contents_of(const fs::path& snapshot) {
  const fs::path readme = snapshot / "README.md";
  return {.paths = data_paths_below(snapshot), .readme = is_file(readme) ? read_file(readme) : std::string()};
}

Contents contents_of(const HubRepo& repo, const HubListing& listing) {
  Contents contents;
  for (const HubFile& file : listing.files) {
    if (is_data_path(file.path)) contents.paths.push_back(file.path);
  }
  const std::vector<std::string> readme = {"README.md"};
  if (std::ranges::find(listing.files, readme[0], &HubFile::path) != listing.files.end()) {
    contents.readme = read_file(download(repo, listing, readme) / readme[0]);
  }
  return contents;
}

std::vector<fs::path> below(const fs::path& folder, const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  files.reserve(paths.size());
  for (const std::string& path : paths) files.push_back(folder / path);
  return files;
}

// Returns the split's files from the hub's cache, or nothing if any of them is missing.
std::vector<fs::path> cached_files(const DatasetName& dataset, std::string_view split) {
  const fs::path snapshot = snapshot_folder(repo_of(dataset));
  if (!is_folder(snapshot)) return {};
  const Contents contents = contents_of(snapshot);
  try {
    const auto paths = files_of_split(data_files_of(contents.query(dataset)), split, dataset.name);
    if (has_all_shards(paths)) return below(snapshot, paths);
  } catch (const Error&) {
    return {};  // the hub may have the split
  }
  return {};
}

std::string folded(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '_' && c != '-') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

bool is_prepared_split(const std::string& file, std::string_view split) {
  return file.ends_with(text_of("-", split, ".arrow")) ||
         (file.ends_with(".arrow") && file.find(text_of("-", split, "-0")) != std::string::npos);
}

// Returns the newest files that Hugging Face's datasets library prepared for the split:
// NAMESPACE___NAME/CONFIG/VERSION/HASH/NAME-SPLIT*.arrow.
std::vector<fs::path> prepared_files(const DatasetName& dataset, std::string_view split) {
  const fs::path cache = datasets_cache();
  if (!is_folder(cache)) return {};
  std::vector<fs::path> newest;
  fs::file_time_type newest_time;
  for (const std::string& name : list_folder(cache)) {
    if (folded(name) != folded(dataset.name.substr(0, dataset.name.find('/'))) +
                            folded(dataset.name.substr(dataset.name.find('/') + 1)) ||
        !is_folder(cache / name)) {
      continue;
    }
    const fs::path config = cache / name / (dataset.config.empty() ? "default" : dataset.config);
    if (!is_folder(config)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(config)) {
      if (!is_prepared_split(entry.path().filename().string(), split)) continue;
      const fs::path folder = entry.path().parent_path();
      const auto time = fs::last_write_time(folder);
      if (!newest.empty() && (newest.front().parent_path() == folder || time <= newest_time)) continue;
      std::vector<std::string> files;
      for (const std::string& file : list_folder(folder)) {
        if (is_prepared_split(file, split)) files.push_back(file);
      }
      if (!has_all_shards(files)) continue;
      newest = below(folder, files);
      newest_time = time;
    }
  }
  return newest;
}

std::vector<fs::path> hub_files(const DatasetName& dataset, const std::string& split) {
  if (auto files = cached_files(dataset, split); !files.empty()) return files;
  if (auto files = prepared_files(dataset, split); !files.empty()) {
    log_once(text_of(dataset.name, ": the files that Hugging Face's datasets library prepared in ",
                     files.front().parent_path().string(), " are used"));
    return files;
  }
  const HubRepo repo = repo_of(dataset);
  const HubListing listing = list_repo(repo);
  const Contents contents = contents_of(repo, listing);
  const auto paths = files_of_split(data_files_of(contents.query(dataset)), split, dataset.name);
  return below(download(repo, listing, paths), paths);
}

}  // namespace

Source open_dataset(const DatasetName& dataset, const SourceOptions& options) {
  SourcePart part;
  part.files = is_on_hub(dataset.name) ? hub_files(dataset, options.split)
                                       : local_data_files(dataset.name, dataset.config, options.split);
  std::vector<SourcePart> parts;
  parts.push_back(std::move(part));
  return {dataset.name, std::move(parts), options};
}

bool names_splits(const DatasetName& dataset) {
  if (!is_on_hub(dataset.name)) return local_names_splits(dataset.name, dataset.config);
  const HubRepo repo = repo_of(dataset);
  if (is_offline()) {
    const fs::path snapshot = snapshot_folder(repo);
    return is_folder(snapshot) && names_splits(contents_of(snapshot).query(dataset));
  }
  return names_splits(contents_of(repo, list_repo(repo)).query(dataset));
}

}  // namespace hone
