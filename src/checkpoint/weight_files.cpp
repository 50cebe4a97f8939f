#include "checkpoint/weight_files.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint/safetensors_header.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

std::string single_file(std::string_view stem) { return text_of(stem, ".safetensors"); }
std::string index_file(std::string_view stem) { return text_of(stem, ".safetensors.index.json"); }

std::string shard_name(std::string_view stem, std::size_t number, std::size_t count) {
  std::array<char, 64> rest{};
  std::snprintf(rest.data(), rest.size(), "-%05zu-of-%05zu.safetensors", number, count);
  return text_of(stem, rest.data());
}

// Reads the weight_map of an index: the name of the file of each tensor. Core's Json, which preserves the order of
// keys, would need a linear search for each of the 90,000 keys of a large model.
class IndexReader : public nlohmann::json_sax<Json> {
 public:
  // Throws Error if the text was not valid JSON or has no weight_map.
  [[nodiscard]] const std::map<std::string, std::optional<std::string>>& files(const std::string& where) const {
    if (!is_valid_) throw Error(where, "is not valid JSON");
    if (!files_) throw Error(where, "holds no weight_map");
    return *files_;
  }

  bool null() override { return add({}); }
  bool boolean(bool) override { return add({}); }
  bool binary(binary_t&) override { return add({}); }
  bool number_integer(number_integer_t) override { return add({}); }
  bool number_unsigned(number_unsigned_t) override { return add({}); }
  bool number_float(number_float_t, const string_t&) override { return add({}); }
  bool string(string_t& value) override { return add(value); }
  bool start_object(std::size_t) override {
    add({});
    if (depth_ == 1 && in_map_) files_.emplace();
    ++depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    add({});
    ++depth_;
    return true;
  }
  bool key(string_t& value) override {
    if (depth_ == 1) in_map_ = value == "weight_map";
    if (depth_ <= 2) key_ = value;
    return true;
  }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    is_valid_ = false;
    return false;
  }

 private:
  // Takes a value, which is a file's name, or none if it is no text.
  bool add(std::optional<std::string> name) {
    if (depth_ == 1 && in_map_) files_.reset();
    if (depth_ == 2 && in_map_ && files_) (*files_)[key_] = std::move(name);
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }

  std::optional<std::map<std::string, std::optional<std::string>>> files_;  // a value that is no text: nullopt
  std::string key_;
  int depth_ = 0;
  bool in_map_ = false;  // in the value of the key weight_map
  bool is_valid_ = true;
};

// Returns the tensors of each shard by the shard's file name.
std::map<std::string, std::vector<std::string>> read_index(const fs::path& path) {
  const std::string where = path.string();
  IndexReader reader;
  read_json_values(read_file(path), reader);
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, file] : reader.files(where)) {
    if (!file) throw Error(where, text_of("weight_map: tensor ", quoted_name(tensor), " has no file name"));
    const std::string& name = *file;
    if (name.empty() || name == ".." || name.find('/') != std::string::npos || name.find('\0') != std::string::npos) {
      throw Error(where, text_of("weight_map: tensor ", quoted_name(tensor), ": ", quoted_name(name),
                                 " is not the name of a file in this folder"));
    }
    shards[name].push_back(tensor);
  }
  if (shards.empty()) throw Error(where, "the weight_map is empty");
  return shards;
}

bool is_shard_name(const std::string& name, std::string_view stem) {
  std::size_t number = 0;
  std::size_t count = 0;
  return name.starts_with(stem) && std::sscanf(name.c_str() + stem.size(), "-%5zu-of-%5zu", &number, &count) == 2 &&
         name == shard_name(stem, number, count);
}

std::vector<std::string> shards_in(const fs::path& folder, std::string_view stem) {
  std::vector<std::string> names = list_folder(folder);
  std::erase_if(names, [&](const std::string& name) { return !is_shard_name(name, stem); });
  return names;
}

// Fills shards greedily in order, as huggingface_hub's split_state_dict_into_shards_factory does: a tensor that does
// not fit starts a new shard, and a tensor larger than a shard gets a separate shard.
std::vector<std::vector<TensorSource>> split_into_shards(std::span<const TensorSource> sources,
                                                         std::uint64_t max_shard_bytes) {
  std::vector<std::vector<TensorSource>> shards;
  std::vector<TensorSource> current;
  std::uint64_t current_bytes = 0;
  for (const TensorSource& source : sources) {
    const std::uint64_t bytes = source.byte_count();
    if (bytes > max_shard_bytes) {
      shards.push_back({source});
      continue;
    }
    if (!current.empty() && bytes > max_shard_bytes - current_bytes) {
      shards.push_back(std::move(current));
      current.clear();
      current_bytes = 0;
    }
    current.push_back(source);
    current_bytes += bytes;
  }
  if (!current.empty() || shards.empty()) shards.push_back(std::move(current));
  return shards;
}

void write_index(const fs::path& folder, std::string_view stem, std::span<const std::vector<TensorSource>> shards) {
  std::map<std::string, std::string> files;
  std::uint64_t total_size = 0;
  std::uint64_t total_parameters = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const TensorSource& source : shards[i]) {
      files[stored_name(source)] = shard_name(stem, i + 1, shards.size());
      total_size += source.byte_count();
      total_parameters += source.byte_count() / size_of(source.dtype);
    }
  }
  Json index{{"metadata", {{"total_parameters", total_parameters}, {"total_size", total_size}}},
             {"weight_map", Json::object()}};
  auto& weight_map = index["weight_map"].get_ref<Json::object_t&>();
  for (const auto& [tensor, file] : files) weight_map.emplace_back(tensor, file);
  write_json(folder / index_file(stem), index);
}

}  // namespace

bool is_name_of_set(const std::string& name, std::string_view stem) {
  return name == single_file(stem) || name == index_file(stem) || is_shard_name(name, stem);
}

WeightFiles::WeightFiles(const fs::path& folder, std::string_view stem) : folder_(folder.string()), stem_(stem) {
  const std::string single = single_file(stem);
  const std::string index = index_file(stem);
  if (is_file(folder / single)) {
    files_.emplace_back(folder / single);
  } else if (is_file(folder / index)) {
    const auto shards = read_index(folder / index);
    files_.reserve(shards.size());
    for (const auto& [name, tensors] : shards) {
      if (!is_file(folder / name)) {
        throw Error((folder / name).string(), text_of("is missing, but ", index, " names it"));
      }
      const SafetensorsFile& file = files_.emplace_back(folder / name);
      for (const std::string& tensor : tensors) {
        if (file.find(tensor) == nullptr) {
          throw Error(file.name(),
                      text_of("holds no tensor ", quoted_name(tensor), ", but ", index, " lists it there"));
        }
      }
    }
  } else if (is_folder(folder)) {
    const auto shards = shards_in(folder, stem);
    if (!shards.empty()) {
      throw Error(folder_, text_of("holds ", shards.front(), " but no ", index),
                  "saving or copying these files was interrupted; save or copy them again");
    }
  }
  for (const SafetensorsFile& file : files_) {
    for (const StoredTensor& tensor : file.tensors()) {
      const auto [found, inserted] = index_.emplace(tensor.name, &tensor);
      if (!inserted) {
        throw Error(file.name(), text_of("tensor ", quoted_name(tensor.name), " is also in ", found->second->file));
      }
    }
  }
}

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> names;
  names.reserve(index_.size());
  for (const SafetensorsFile& file : files_) {
    for (const StoredTensor& tensor : file.tensors()) names.push_back(tensor.name);
  }
  return names;
}

const StoredTensor* WeightFiles::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : found->second;
}

const StoredTensor& WeightFiles::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  if (empty())
    throw Error(folder_, text_of("holds no weights: neither ", single_file(stem_), " nor ", index_file(stem_)));
  const std::string nearest = nearest_name(name, names());
  throw Error(files_.size() == 1 ? files_.front().name() : folder_,
              text_of("the weights hold no tensor ", quoted_name(name)),
              nearest.empty() ? "" : text_of("the nearest is ", quoted_name(nearest)));
}

void write_weights(const fs::path& folder, std::span<const TensorSource> sources, std::uint64_t max_shard_bytes,
                   std::string_view stem, const std::map<std::string, std::string>& metadata) {
  HONE_ASSERT(max_shard_bytes > 0, "max_shard_bytes 0");
  const auto shards = split_into_shards(sources, max_shard_bytes);
  const std::vector<std::string> old_shards = shards_in(folder, stem);
  std::vector<std::string> written;
  if (shards.size() == 1) {
    write_safetensors(folder / single_file(stem), shards.front(), metadata);
  } else {
    // Write the shards under names that no reader uses, so the old ones stay valid until all new ones are on disk.
    for (std::size_t i = 0; i < shards.size(); ++i) {
      written.push_back(shard_name(stem, i + 1, shards.size()));
      write_safetensors(folder / ("new-" + written.back()), shards[i], metadata);
    }
    remove_path(folder / single_file(stem));
  }
  remove_path(folder / index_file(stem));
  for (const std::string& name : written) rename_path(folder / ("new-" + name), folder / name);
  for (const std::string& name : old_shards) {
    if (std::ranges::find(written, name) == written.end()) remove_path(folder / name);
  }
  if (shards.size() > 1) write_index(folder, stem, shards);
}

}  // namespace hone
