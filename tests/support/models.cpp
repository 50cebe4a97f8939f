#include "support/models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "core/json_value.h"
#include "support/device.h"
#include "support/paths.h"

namespace hone::test {

FixtureModel::FixtureModel(std::string_view name, DType dtype, Device& device)
    : directory(fixture("models") / name),
      model(family_registry().create(directory.config())),
      weights(load_weights(*model, directory, dtype, device)),
      reference(fixture("models") / name / "reference.safetensors") {}

std::vector<TokenId> FixtureModel::ids(std::string_view name) const {
  const auto values = read_values<std::int64_t>(reference.at(name));
  return {values.begin(), values.end()};
}

HostBatch FixtureModel::batch() const {
  const std::vector<TokenId> tokens = ids("input_ids");
  const std::vector<TokenId> ends = ids("cu_seqlens");
  std::vector<std::vector<TokenId>> documents;
  for (std::size_t d = 0; d + 1 < ends.size(); ++d) {
    documents.emplace_back(tokens.begin() + ends[d], tokens.begin() + ends[d + 1]);
  }
  return batch_of(documents);
}

namespace {

// Tensors of a part, or of rows without a part, whose names begin with `name`. The keys are the rest of the names: the
// name of a state, or empty.
std::map<std::string, const StoredTensor*> stored_after(const SafetensorsFile& file, const std::string& name) {
  std::map<std::string, const StoredTensor*> found;
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.name == name) found[""] = &tensor;
    if (tensor.name.starts_with(name + ".")) found[tensor.name.substr(name.size())] = &tensor;
  }
  return found;
}

}  // namespace

void write_as_first_format(const std::filesystem::path& checkpoint, const Model& model) {
  const std::filesystem::path path = checkpoint / "optimizer.safetensors";
  std::map<std::string, std::vector<std::byte>> bytes;  // by the names of blocks
  std::vector<TensorSource> sources;
  {
    const SafetensorsFile file(path);
    std::map<std::string, std::pair<DType, std::vector<std::int64_t>>> types;
    std::set<std::string> seen;
    const auto append = [&](const std::string& to, const StoredTensor& from) {
      seen.insert(from.name);
      bytes[to].insert(bytes[to].end(), from.bytes.begin(), from.bytes.end());
      const auto [type, added] = types.emplace(to, std::pair(dtype_of(from.type).value(), from.shape));
      if (!added) type->second.second[0] += from.shape[0];
    };
    for (const std::string prefix : {"optimizer.", "extra."}) {
      for (const WeightSpec& spec : model.weights()) {
        for (const auto& [state, first] : stored_after(file, prefix + spec.parts[0].name)) {
          const std::string block = prefix + spec.name + state;
          std::int64_t row = 0;
          const auto append_gap = [&] {
            const auto gap = std::ranges::find_if(file.tensors(), [&](const StoredTensor& tensor) {
              const std::string begin = block + "@" + std::to_string(row);
              return tensor.name == begin || tensor.name.starts_with(begin + ",");
            });
            if (gap != file.tensors().end()) append(block, *gap);
          };
          for (const WeightPart& part : spec.parts) {
            if (part.row > row) append_gap();
            append(block, file.at(prefix + part.name + state));
            row = part.row + part.rows;
          }
          append_gap();
        }
      }
    }
    for (const StoredTensor& tensor : file.tensors()) {
      if (!seen.contains(tensor.name)) append(tensor.name, tensor);
    }
    for (const auto& [name, type] : types) {
      sources.push_back(tensor_source(name, type.first, type.second, bytes[name]));
    }
  }
  write_safetensors(path, sources);
  Json state = read_json(checkpoint / "training_state.json");
  state["files"]["optimizer.safetensors"] = std::filesystem::file_size(path);
  write_json(checkpoint / "training_state.json", state);
}

void write_state_in_several_files(const std::filesystem::path& checkpoint, std::uint64_t max_file_bytes) {
  const std::filesystem::path path = checkpoint / "optimizer.safetensors";
  const SafetensorsFile file(path);
  std::vector<TensorSource> sources;
  for (const StoredTensor& tensor : file.tensors()) {
    sources.push_back(tensor_source(tensor.name, dtype_of(tensor.type).value(), tensor.shape, tensor.bytes));
  }
  write_weights(checkpoint, sources, max_file_bytes, "optimizer", file.metadata());
  EXPECT_FALSE(std::filesystem::exists(path)) << "one file is enough for " << max_file_bytes << " bytes";
  Json state = read_json(checkpoint / "training_state.json");
  state["files"].erase("optimizer.safetensors");
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("optimizer")) state["files"][name] = entry.file_size();
  }
  write_json(checkpoint / "training_state.json", state);
}

Tokenizer letter_tokenizer(std::int64_t size) {
  Json vocab = Json::object();
  for (std::int64_t id = 0; id < size; ++id) {
    std::string token{static_cast<char>('a' + id % 26), static_cast<char>('a' + id / 26 % 26),
                      static_cast<char>('a' + id / 676)};
    vocab[token] = id;
  }
  const Json file{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  return Tokenizer::from_json(file.dump());
}

HostBatch batch_of(std::span<const std::vector<TokenId>> documents) {
  HostBatch batch;
  for (const std::vector<TokenId>& document : documents) {
    append_document(batch, {.tokens = document, .is_target = {}}, 0, static_cast<std::int64_t>(document.size()),
                    LookAhead::kNo);
  }
  return batch;
}

std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

double relative_difference(std::span<const float> a, std::span<const float> b) {
  double most = 0;
  double scale = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    scale = std::max(scale, std::abs(static_cast<double>(b[i])));
  }
  return scale > 0 ? most / scale : most;
}

std::vector<NamedType> update_store(const Model& model, DType dtype, const OptimizerOptions& options,
                                    std::string_view name) {
  Workspace workspace(DeviceKind::kCpu);
  workspace.add_weights(kWeightStore, weight_types(model, dtype));
  add_update(workspace, model, dtype, options);
  for (const StoreSpec& store : workspace.stores()) {
    if (store.name == name) return store.tensors;
  }
  return {};
}

}  // namespace hone::test
