// Which files of a dataset belong to a configuration and a split of it, as Hugging Face's datasets finds them: by the
// `configs` in the front matter of its README.md, else by the names of files and folders.
// Source: https://huggingface.co/docs/hub/datasets-file-names-and-splits
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hone {

// Paths by split, both in order.
using SplitFiles = std::vector<std::pair<std::string, std::vector<std::string>>>;

struct DataFilesQuery {
  std::span<const std::string> paths;  // of the dataset's files, relative to it, sorted
  std::string_view readme;             // the content of its README.md; empty where it has none
  std::string_view config;             // empty: the one that is the default
  std::string_view name;               // of the dataset, for messages
};
// Throws Error where there is no such configuration, or none of several is the default. A configuration may also be the
// name of a folder; where it is neither, and the README.md names none, it is said once that all is read. Without names
// that mean splits all files are train.
[[nodiscard]] SplitFiles data_files_of(const DataFilesQuery& query);
// Whether names or README.md say splits at all.
[[nodiscard]] bool names_splits(const DataFilesQuery& query);
// The files of one split. Throws Error that lists those there are.
[[nodiscard]] std::vector<std::string> files_of_split(const SplitFiles& splits, std::string_view split,
                                                      std::string_view name);

// "*" and "?" stay within a folder, "**" does not; "[a-c]" and "{a,b}" as in a shell.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view path);

// The files of a folder that can be data, all below it, sorted; what libraries keep beside data is left out. Throws
// Error where it cannot be listed.
[[nodiscard]] std::vector<std::string> data_paths_below(const std::filesystem::path& folder);
// Whether a file of this name can be data.
[[nodiscard]] bool is_data_path(std::string_view path);

// A local dataset: a file, a folder, a pattern, or several of them with commas between. Throws Error.
[[nodiscard]] std::vector<std::filesystem::path> local_data_files(const std::string& name, std::string_view config,
                                                                  std::string_view split);
[[nodiscard]] bool is_local_dataset(const std::string& name);
[[nodiscard]] bool local_names_splits(const std::string& name, std::string_view config);

}  // namespace hone
