#include "support/models.h"

#include <algorithm>
#include <cmath>

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
                    LookAhead::no);
  }
  return batch;
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
  Workspace workspace(DeviceKind::cpu);
  workspace.add_weights(kWeightStore, weight_types(model, dtype));
  add_update(workspace, model, dtype, options);
  for (const StoreSpec& store : workspace.stores()) {
    if (store.name == name) return store.tensors;
  }
  return {};
}

}  // namespace hone::test
