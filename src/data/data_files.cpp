#include "data/data_files.h"

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>

#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/yaml.h"
#include "data/file_format.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

// Returns true for metadata and cache files that libraries store with the data.
bool is_description(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                                                      "state.json"};
  return std::ranges::find(kNames, name) != kNames.end() || (name.starts_with("cache-") && name.ends_with(".arrow"));
}

// Returns the split that a word in `name` denotes. Words are found between separators, as Hugging Face's loader does.
std::optional<std::string_view> split_named_in(std::string_view name) {
  constexpr std::string_view kSeparators = "-._ 0123456789/";
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kWords = {{{"train", "train"},
                                                                                     {"training", "train"},
                                                                                     {"validation", "validation"},
                                                                                     {"valid", "validation"},
                                                                                     {"dev", "validation"},
                                                                                     {"val", "validation"},
                                                                                     {"test", "test"},
                                                                                     {"testing", "test"},
                                                                                     {"eval", "test"},
                                                                                     {"evaluation", "test"}}};
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of(kSeparators), name.size());
    for (const auto& [word, split] : kWords) {
      if (name.substr(0, end) == word) return split;
    }
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return std::nullopt;
}

void add_file(SplitFiles& splits, std::string_view split, const std::string& path) {
  auto known = std::ranges::find(splits, split, &SplitFiles::value_type::first);
  if (known == splits.end()) known = splits.insert(splits.end(), {std::string(split), {}});
  known->second.push_back(path);
}

// Splits by the words in file names, otherwise by those in folder names; empty if no name contains such a word.
SplitFiles named_splits(std::span<const std::string> paths) {
  SplitFiles splits;
  for (const bool by_file_name : {true, false}) {
    for (const std::string& path : paths) {
      const fs::path parts(path);
      const auto split = split_named_in((by_file_name ? parts.filename() : parts.parent_path()).generic_string());
      if (split) add_file(splits, *split, path);
    }
    if (!splits.empty()) break;
  }
  return splits;
}

// One configuration of a README.md.
struct CardConfig {
  std::string name = "default";
  bool is_default = false;
  // Patterns by split; if empty, files are chosen by their names in data_dir.
  std::vector<std::pair<std::string, std::vector<std::string>>> patterns;
  std::string data_dir;
};

std::vector<std::string> texts_of(const YamlValue& value) {
  if (value.kind == YamlValue::Kind::kScalar) return {value.scalar};
  std::vector<std::string> texts;
  for (const YamlValue& item : value.items) {
    if (item.kind == YamlValue::Kind::kScalar) texts.push_back(item.scalar);
  }
  return texts;
}

// Accepts a pattern, a list of patterns, a map from splits to patterns, or a list of {split, path}.
void read_data_files(const YamlValue& value, CardConfig& config) {
  if (value.kind == YamlValue::Kind::kMap) {
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      config.patterns.emplace_back(value.keys[i], texts_of(value.items[i]));
    }
    return;
  }
  for (const YamlValue& item : value.items) {
    const YamlValue* path = item.find("path");
    const YamlValue* split = item.find("split");
    if (path != nullptr) config.patterns.emplace_back(split == nullptr ? "train" : split->scalar, texts_of(*path));
  }
  if (config.patterns.empty()) config.patterns.emplace_back("train", texts_of(value));
}

std::vector<CardConfig> card_configs(const DataFilesQuery& query) {
  std::vector<CardConfig> configs;
  std::string_view text = query.readme;
  if (!text.starts_with("---")) return configs;
  text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  const std::string front = "\n" + std::string(text);
  const std::size_t end = front.find("\n---");
  if (end == std::string::npos) return configs;
  YamlValue card;
  try {
    card = parse_yaml(std::string_view(front).substr(0, end), text_of(query.name, " README.md"));
  } catch (const Error& error) {
    log_once(text_of(error.what(), "; files are chosen by their names"));
    return configs;
  }
  const YamlValue* list = card.kind == YamlValue::Kind::kMap ? card.find("configs") : nullptr;
  if (list == nullptr) return configs;
  for (const YamlValue& item : list->items) {
    if (item.kind != YamlValue::Kind::kMap) continue;
    CardConfig& config = configs.emplace_back();
    if (const YamlValue* name = item.find("config_name")) config.name = name->scalar;
    if (const YamlValue* is_default = item.find("default")) {
      config.is_default = yaml_boolean(is_default->scalar) == true;
    }
    if (const YamlValue* folder = item.find("data_dir")) config.data_dir = folder->scalar;
    if (const YamlValue* files = item.find("data_files")) read_data_files(*files, config);
  }
  return configs;
}

const CardConfig* chosen_config(const std::vector<CardConfig>& configs, const DataFilesQuery& query) {
  for (const CardConfig& config : configs) {
    if (query.config.empty() ? config.is_default : config.name == query.config) return &config;
  }
  if (query.config.empty()) {
    if (configs.size() == 1) return configs.data();
    for (const CardConfig& config : configs) {
      if (config.name == "default") return &config;
    }
  }
  return nullptr;
}

std::vector<std::string> paths_in(std::span<const std::string> paths, std::string_view folder) {
  std::string prefix(folder);
  while (prefix.starts_with("./")) prefix.erase(0, 2);
  if (!prefix.ends_with('/')) prefix += '/';
  std::vector<std::string> inside;
  for (const std::string& path : paths) {
    if (path.starts_with(prefix)) inside.push_back(path);
  }
  return inside;
}

SplitFiles files_of_config(const CardConfig& config, const DataFilesQuery& query) {
  if (config.patterns.empty()) {
    const std::vector<std::string> all(query.paths.begin(), query.paths.end());
    return named_splits(config.data_dir.empty() ? all : paths_in(query.paths, config.data_dir));
  }
  SplitFiles splits;
  for (const auto& [split, patterns] : config.patterns) {
    for (std::string pattern : patterns) {
      if (!config.data_dir.empty()) pattern.insert(0, config.data_dir + "/");
      if (pattern.starts_with("./")) pattern.erase(0, 2);
      for (const std::string& path : query.paths) {
        if (glob_matches(pattern, path)) add_file(splits, split, path);
      }
    }
  }
  return splits;
}

// Returns the splits that README.md or file names define. `rest` receives the files to use if neither defines any.
SplitFiles declared_splits(const DataFilesQuery& query, std::vector<std::string>& rest) {
  rest.assign(query.paths.begin(), query.paths.end());
  const std::vector<CardConfig> configs = card_configs(query);
  if (const CardConfig* config = chosen_config(configs, query)) {
    if (!config->data_dir.empty()) rest = paths_in(query.paths, config->data_dir);
    if (!config->patterns.empty()) rest.clear();
    return files_of_config(*config, query);
  }
  if (!query.config.empty()) {
    std::vector<std::string> inside = paths_in(query.paths, query.config);
    if (!inside.empty()) {
      rest = std::move(inside);
      for (std::string& path : rest) path.erase(0, query.config.size() + 1);
      SplitFiles splits = named_splits(rest);
      const auto prefix = [&](std::string& path) { path = text_of(query.config, "/", path); };
      for (auto& [split, paths] : splits) std::ranges::for_each(paths, prefix);
      std::ranges::for_each(rest, prefix);
      return splits;
    }
  }
  if (!configs.empty()) {
    std::vector<std::string> names;
    names.reserve(configs.size());
    for (const CardConfig& config : configs) names.push_back(config.name);
    throw Error(query.name,
                query.config.empty() ? "has several configurations and none is the default"
                                     : text_of("has no configuration '", query.config, "'"),
                text_of("set dataset_config to one of: ", join(names, ", ")));
  }
  if (!query.config.empty()) {
    log_once(text_of("dataset_config ", query.config, ": ", query.name,
                     " has no configuration or folder of that name; all its files are read"));
  }
  return named_splits(rest);
}

bool matches_class(std::string_view set, char c) {
  const bool negated = set.starts_with('!') || set.starts_with('^');
  if (negated) set.remove_prefix(1);
  bool found = false;
  for (std::size_t i = 0; i < set.size(); ++i) {
    if (i + 2 < set.size() && set[i + 1] == '-') {
      found = found || (set[i] <= c && c <= set[i + 2]);
      i += 2;
    } else {
      found = found || set[i] == c;
    }
  }
  return found != negated;
}

constexpr int kMostGlobSteps = 100'000;  // limits the backtracking of patterns with many stars

bool glob_from(std::string_view pattern, std::string_view path, int& steps) {
  while (!pattern.empty()) {
    if (++steps > kMostGlobSteps) return false;
    const char c = pattern.front();
    if (c == '*') {
      const bool deep = pattern.starts_with("**");
      pattern.remove_prefix(deep ? 2 : 1);
      if (deep && pattern.starts_with('/') && glob_from(pattern.substr(1), path, steps)) return true;
      for (std::size_t i = 0; i <= path.size(); ++i) {
        if (glob_from(pattern, path.substr(i), steps)) return true;
        if (i < path.size() && path[i] == '/' && !deep) break;
      }
      return false;
    }
    if (c == '{') {
      const std::size_t close = pattern.find('}');
      if (close != std::string_view::npos) {
        for (const std::string& choice : split(pattern.substr(1, close - 1), ',')) {
          if (glob_from(choice + std::string(pattern.substr(close + 1)), path, steps)) return true;
        }
        return false;
      }
    }
    if (path.empty()) return false;
    std::size_t used = 1;
    if (c == '[' && pattern.find(']', 2) != std::string_view::npos) {
      used = pattern.find(']', 2) + 1;
      if (!matches_class(pattern.substr(1, used - 2), path.front())) return false;
    } else if (c == '?' ? path.front() == '/' : c != path.front()) {
      return false;
    }
    pattern.remove_prefix(used);
    path.remove_prefix(1);
  }
  return path.empty();
}

bool is_pattern(std::string_view name) { return name.find_first_of("*?[{") != std::string_view::npos; }

std::vector<fs::path> files_of_pattern(const std::string& pattern) {
  const std::size_t wild = pattern.find_first_of("*?[{");
  const std::size_t slash = pattern.rfind('/', wild);
  const fs::path base = slash == std::string::npos ? fs::path(".") : fs::path(pattern.substr(0, slash + 1));
  std::vector<fs::path> files;
  if (!is_folder(base)) throw Error(pattern, text_of("there is no folder ", base.string()));
  const std::string rest = slash == std::string::npos ? pattern : pattern.substr(slash + 1);
  for (const std::string& path : data_paths_below(base)) {
    if (glob_matches(rest, path)) files.push_back(slash == std::string::npos ? fs::path(path) : base / path);
  }
  if (files.empty()) throw Error(pattern, "matches no data file", text_of("known formats: ", known_formats()));
  return files;
}

std::string readme_of(const fs::path& folder) {
  return is_file(folder / "README.md") ? read_file(folder / "README.md") : std::string();
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view path) {
  int steps = 0;
  return glob_from(pattern, path, steps);
}

SplitFiles data_files_of(const DataFilesQuery& query) {
  std::vector<std::string> rest;
  SplitFiles splits = declared_splits(query, rest);
  if (splits.empty() && !rest.empty()) splits.emplace_back("train", std::move(rest));
  return splits;
}

bool names_splits(const DataFilesQuery& query) {
  std::vector<std::string> rest;
  return !declared_splits(query, rest).empty();
}

std::vector<std::string> files_of_split(const SplitFiles& splits, std::string_view split, std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [known, files] : splits) {
    if (known == split) return files;
    names.push_back(known);
  }
  if (names.empty()) throw Error(name, "holds no data", text_of("known formats: ", known_formats()));
  throw Error(name, text_of("has no split '", split, "'; it has: ", join(names, ", ")));
}

bool is_data_path(std::string_view path) {
  const fs::path parts(path);
  for (const fs::path& part : parts) {
    if (part.string().starts_with('.')) return false;
  }
  return format_of(parts).has_value() && !is_description(parts.filename().string());
}

std::vector<std::string> data_paths_below(const fs::path& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with('.')) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    const std::string path = it->path().lexically_relative(folder).generic_string();
    if (is_data_path(path) && it->is_regular_file()) paths.push_back(path);
  }
  if (error) throw Error(folder.string(), text_of("cannot list the folder: ", error.message()));
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<fs::path> local_data_files(const std::string& name, std::string_view config, std::string_view split) {
  const fs::path path = name;
  std::vector<fs::path> files;
  if (is_folder(path)) {
    const std::vector<std::string> paths = data_paths_below(path);
    if (paths.empty())
      throw Error(name, "the folder holds no data", text_of("put ", known_formats(), " files into it"));
    const std::string readme = readme_of(path);
    const SplitFiles splits = data_files_of({.paths = paths, .readme = readme, .config = config, .name = name});
    for (const std::string& file : files_of_split(splits, split, name)) files.push_back(path / file);
    return files;
  }
  std::error_code ignored;
  const bool exists = fs::exists(path, ignored);
  if (exists || is_pattern(name)) {
    if (split != "train") {
      throw Error(name, text_of(exists ? "a single file" : "a pattern", " has no split '", split, "'"));
    }
    return exists ? std::vector<fs::path>{path} : files_of_pattern(name);
  }
  if (name.find(',') != std::string::npos) {
    for (const std::string& part : hone::split(name, ',')) {
      const std::vector<fs::path> more = local_data_files(std::string(trim(part)), config, split);
      files.insert(files.end(), more.begin(), more.end());
    }
    return files;
  }
  throw Error(name, "no such file or folder",
              text_of("give the path of a ", known_formats(), " file, or of a folder of them"));
}

bool is_local_dataset(const std::string& name) {
  std::error_code ignored;
  return fs::exists(name, ignored) || is_pattern(name) || name.find(',') != std::string::npos;
}

bool local_names_splits(const std::string& name, std::string_view config) {
  if (!is_folder(name)) return false;
  const std::vector<std::string> paths = data_paths_below(name);
  const std::string readme = readme_of(name);
  return names_splits({.paths = paths, .readme = readme, .config = config, .name = name});
}

}  // namespace hone
