// Selects the files of a dataset that belong to a configuration and a split, in the same way as Hugging Face's datasets
// library: by the `configs` in the front matter of README.md, otherwise by the names of files and folders.
// Source: https://huggingface.co/docs/hub/datasets-file-names-and-splits
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hone {

// Split names and their paths, in the order in which they are found.
using SplitFiles = std::vector<std::pair<std::string, std::vector<std::string>>>;

struct DataFilesQuery {
  std::span<const std::string> paths;  // paths of the dataset's files, relative to its root, sorted
  std::string_view readme;             // content of its README.md; empty if it has none
  std::string_view config;             // name of the configuration; empty: the default one
  std::string_view name;               // name of the dataset, for messages
};
// Returns the files of each split. `config` is the name of a configuration in README.md, or of a folder; if it is
// neither, and README.md lists no configurations, all files are used and a notice is logged once. Without file or
// folder names that indicate splits, all files are train. Throws Error if README.md has no such configuration, or has
// several and none is the default.
[[nodiscard]] SplitFiles data_files_of(const DataFilesQuery& query);
// Returns true if file names or README.md indicate splits at all.
[[nodiscard]] bool names_splits(const DataFilesQuery& query);
// Returns the files of one split. Throws Error that lists the existing splits.
[[nodiscard]] std::vector<std::string> files_of_split(const SplitFiles& splits, std::string_view split,
                                                      std::string_view name);

// Matches a path against a glob pattern. "*" and "?" do not match "/", "**" does; "[a-c]" and "{a,b}" work as in a
// shell.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view path);

// Returns all data files at any depth below a folder, sorted; metadata files that libraries store with the data are
// skipped. Throws Error if the folder cannot be listed.
[[nodiscard]] std::vector<std::string> data_paths_below(const std::filesystem::path& folder);
// Returns true if a file of this name can contain data.
[[nodiscard]] bool is_data_path(std::string_view path);

// Returns the files of a local dataset: a file, a folder, a pattern, or several of these separated by commas. Throws
// Error.
[[nodiscard]] std::vector<std::filesystem::path> local_data_files(const std::string& name, std::string_view config,
                                                                  std::string_view split);
[[nodiscard]] bool is_local_dataset(const std::string& name);
[[nodiscard]] bool local_names_splits(const std::string& name, std::string_view config);

}  // namespace hone
