// Tests of the mapping between block parts and checkpoint tensors: slices of merged tensors, shard axes, staging in
// pieces.
#include "model/weight_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "model/registry.h"
#include "model/weight_tensors.h"
#include "model/weights.h"
#include "support/metered_device.h"
#include "support/paths.h"

namespace hone {
namespace {

using test::TemporaryDirectory;
using testing::HasSubstr;

constexpr std::int64_t kExperts = 3;
constexpr std::int64_t kHidden = 8;
constexpr std::int64_t kInner = 5;

// A family whose checkpoints merge tensors: gate and up of all experts in one tensor, down of all experts in another,
// transposed; q, k and v in one transposed tensor, and their biases in another.
class Merged final : public Model {
 public:
  Merged() {
    shape_.vocab_size = 7;
    shape_.hidden_size = kHidden;
    specs_.push_back({.name = "embedding",
                      .shape = {7, kHidden},
                      .parts = {{.name = "embed.weight", .rows = 7, .axes = {{ShardAxis::kVocabulary}}}},
                      .kind = WeightKind::embedding});
    WeightSpec gate_up{.name = "experts.gate_up", .shape = {kExperts * 2 * kInner, kHidden}, .parts = {}};
    WeightSpec down{.name = "experts.down", .shape = {kExperts * kHidden, kInner}, .parts = {}};
    gate_up.kind = down.kind = WeightKind::expert;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      const std::string expert = "experts." + std::to_string(e);
      for (std::int64_t half = 0; half < 2; ++half) {
        gate_up.parts.push_back({.name = expert + (half == 0 ? ".gate" : ".up"),
                                 .row = (2 * e + half) * kInner,
                                 .rows = kInner,
                                 .axes = {{ShardAxis::kExperts, 0, kInner}, {ShardAxis::kInner, 0}},
                                 .source = {"experts.gate_up_proj", e, half * kInner}});
      }
      down.parts.push_back({.name = expert + ".down",
                            .row = e * kHidden,
                            .rows = kHidden,
                            .transposed = true,
                            .axes = {{ShardAxis::kExperts, 0, kHidden}, {ShardAxis::kInner, 1}},
                            .source = {"experts.down_proj", e}});
    }
    specs_.push_back(std::move(gate_up));
    specs_.push_back(std::move(down));
    WeightSpec qkv{.name = "qkv", .shape = {3 * kHidden, kHidden}, .parts = {}, .kind = WeightKind::linear};
    WeightSpec bias{.name = "qkv_bias", .shape = {3 * kHidden}, .parts = {}, .kind = WeightKind::bias};
    for (std::int64_t i = 0; i < 3; ++i) {
      const std::string name(1, "qkv"[i]);
      qkv.parts.push_back({.name = name + ".weight",
                           .row = i * kHidden,
                           .rows = kHidden,
                           .transposed = true,
                           .axes = {{ShardAxis::kHeads, 0, 4}},
                           .source = {.tensor = "c_attn.weight", .row = i * kHidden}});
      bias.parts.push_back({.name = name + ".bias",
                            .row = i * kHidden,
                            .rows = kHidden,
                            .source = {.tensor = "c_attn.bias", .row = i * kHidden}});
    }
    specs_.push_back(std::move(qkv));
    specs_.push_back(std::move(bias));
  }

  const ModelShape& shape() const override { return shape_; }
  const Json& config() const override { return json_; }
  const std::vector<WeightSpec>& weights() const override { return specs_; }
  Tensor forward(WeightBinder&, Batch&) const override { throw Defect("this family computes nothing"); }
  std::string_view head() const override { return "embedding"; }
  std::vector<WeightSpec>& specs() { return specs_; }

 private:
  Json json_{{"model_type", "merged"}, {"vocab_size", 7}, {"torch_dtype", "float32"}};
  ModelShape shape_;
  std::vector<WeightSpec> specs_;
};

// The tensors of its checkpoint, as another program would write them. Each value encodes its tensor and index.
struct MergedFolder {
  std::vector<std::vector<float>> values;
  std::vector<TensorSource> sources;

  explicit MergedFolder(const std::filesystem::path& path) {
    float next = 0;
    const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
      values.emplace_back(
          static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())));
      std::iota(values.back().begin(), values.back().end(), next);
      next += 1000;
      sources.push_back(tensor_source(name, std::move(shape), std::span<const float>(values.back())));
    };
    values.reserve(5);
    add("embed.weight", {7, kHidden});
    add("experts.gate_up_proj", {kExperts, 2 * kInner, kHidden});
    add("experts.down_proj", {kExperts, kInner, kHidden});
    add("c_attn.weight", {kHidden, 3 * kHidden});
    add("c_attn.bias", {3 * kHidden});
    write_model_directory(path, {.config = Merged().config(), .weights = sources});
  }
};

float element(const TensorStore& store, const char* block, std::int64_t row, std::int64_t column) {
  float value = 0;
  const std::int64_t index = row * store.type(block).row_size() + column;
  std::memcpy(&value, store.data(block) + static_cast<std::size_t>(index) * sizeof(float), sizeof(float));
  return value;
}

TEST(WeightLayout, SlicesOfMergedTensorsComeAndGo) {
  const Merged model;
  check_specs(model.weights());
  const TemporaryDirectory folder;
  const MergedFolder written(folder.path() / "theirs");
  for (const std::size_t piece_bytes : {kPieceBytes, std::size_t{12}}) {
    const TensorStore weights = load_weights(model, ModelDirectory(folder.path() / "theirs"), DType::kF32, cpu_device(),
                                             Vocabulary::kAsStored, piece_bytes);
    // Row 1, column 3 of up of expert 2; an element of its down; elements of k and its bias.
    EXPECT_EQ(element(weights, "experts.gate_up", 5 * kInner + 1, 3),
              1000.0f + static_cast<float>((2 * 2 * kInner + kInner + 1) * kHidden + 3));
    EXPECT_EQ(element(weights, "experts.down", 2 * kHidden + 6, 4),
              2000.0f + static_cast<float>((2 * kInner + 4) * kHidden + 6));
    EXPECT_EQ(element(weights, "qkv", kHidden + 2, 5), 3000.0f + static_cast<float>(5 * 3 * kHidden + kHidden + 2));
    EXPECT_EQ(element(weights, "qkv_bias", kHidden + 2, 0), 4000.0f + static_cast<float>(kHidden + 2));
    save_model(folder.path() / "ours", model, weights, nullptr);
    EXPECT_EQ(read_file(folder.path() / "ours/model.safetensors"),
              read_file(folder.path() / "theirs/model.safetensors"));
  }
}

// A folder with merged experts is read as one with a tensor for each, which is what is saved.
TEST(WeightLayout, MergedExpertsAreReadAsSingleOnes) {
  const Json config{{"model_type", "mixtral"}, {"vocab_size", 30},         {"hidden_size", 16},
                    {"num_hidden_layers", 2},  {"num_attention_heads", 2}, {"intermediate_size", 5},
                    {"num_local_experts", 3},  {"num_experts_per_tok", 2}};
  const std::unique_ptr<Model> model = family_registry().create(config);
  const TensorStore weights = random_weights(*model, 3, DType::kF32, cpu_device());
  const TemporaryDirectory folder;
  save_model(folder.path() / "single", *model, weights, nullptr);
  std::vector<WeightSpec> specs = model->weights();
  for (WeightSpec& spec : specs) {
    for (WeightPart& part : spec.parts) {
      if (!part.alternative.tensor.empty()) part.source = part.alternative;
    }
  }
  const std::vector<TensorSource> merged = weight_sources(specs, true, weights);
  EXPECT_EQ(merged.size(), 2 + 1 + 2 * (2 + 4 + 3u));
  write_model_directory(folder.path() / "merged", {.config = config, .weights = merged});
  const TensorStore read = load_weights(*model, ModelDirectory(folder.path() / "merged"), DType::kF32, cpu_device());
  save_model(folder.path() / "again", *model, read, nullptr);
  EXPECT_EQ(read_file(folder.path() / "again/model.safetensors"),
            read_file(folder.path() / "single/model.safetensors"));
  Json more = config;
  more["num_local_experts"] = 4;
  for (const char* name : {"single", "merged"}) {
    EXPECT_THROW((void)load_weights(*family_registry().create(more), ModelDirectory(folder.path() / name), DType::kF32,
                                    cpu_device()),
                 Error);
  }
}

TEST(WeightLayout, AMergedTensorOfAnotherShapeIsNamed) {
  const TemporaryDirectory folder;
  MergedFolder written(folder.path());
  written.sources[1].shape = {kExperts, kHidden, 2 * kInner};
  write_model_directory(folder.path(), {.config = Merged().config(), .weights = written.sources});
  try {
    (void)load_weights(Merged(), ModelDirectory(folder.path()), DType::kF32, cpu_device());
    FAIL() << "the shape was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("tensor experts.gate_up_proj is [3, 8, 10], but config.json requires [3, 10, 8]"));
  }
}

std::string defect_of(const std::function<void(std::vector<WeightSpec>&)>& change) {
  Merged model;
  change(model.specs());
  try {
    check_specs(model.weights());
  } catch (const Defect& defect) {
    return defect.what();
  }
  return "";
}

TEST(WeightLayout, SpecsThatCannotBeAreRefusedByName) {
  using Specs = std::vector<WeightSpec>;
  const auto gate_up = [](Specs& specs) -> std::vector<WeightPart>& { return specs[1].parts; };
  EXPECT_EQ(defect_of([](Specs&) {}), "");
  EXPECT_THAT(defect_of([&](Specs& s) { gate_up(s)[1].source.row = kInner - 1; }),
              HasSubstr("the slices of experts.gate_up_proj overlap at experts.0.up"));
  EXPECT_THAT(defect_of([&](Specs& s) { gate_up(s)[3].source.row = 0; }), HasSubstr("overlap at experts.1.up"));
  EXPECT_THAT(defect_of([&](Specs& s) { gate_up(s)[1].source.row = kInner + 1; }),
              HasSubstr("the slices of experts.gate_up_proj leave a gap before experts.0.up"));
  EXPECT_THAT(defect_of([&](Specs& s) { gate_up(s)[5].source = {"another", 0, 0}; }),
              HasSubstr("leave a gap behind experts.2.gate"));
  EXPECT_THAT(defect_of([&](Specs& s) { gate_up(s)[5].source.row = kInner + 1; }),
              HasSubstr("leave a gap before experts.1.gate"));
  EXPECT_THAT(defect_of([&](Specs& s) { s[3].parts[1].transposed = false; }), HasSubstr("orientation"));
  EXPECT_THAT(defect_of([&](Specs& s) { s[3].parts[1].name = "q.weight"; }), HasSubstr("two parts are named q.weight"));
  EXPECT_THAT(defect_of([&](Specs& s) { s[3].parts[1].row = 3; }), HasSubstr("k.weight has rows 3 to 11"));
  EXPECT_THAT(defect_of([&](Specs& s) { s[4].parts.pop_back(); }), HasSubstr("qkv_bias fill 16 of its 24 rows"));
  EXPECT_THAT(defect_of([&](Specs& s) { gate_up(s)[2].axes.clear(); }),
              HasSubstr("does not say along which axis experts.1.gate may be cut"));
  EXPECT_THAT(defect_of([&](Specs& s) { s[3].parts[2].axes[0].unit = 3; }), HasSubstr("8 of v.weight"));
  EXPECT_THAT(defect_of([&](Specs& s) { s[3].parts[2].axes[0].dimension = 2; }), HasSubstr("axis of dimension 2"));
  EXPECT_THAT(defect_of([&](Specs& s) { s[0].parts[0].source.tensor = "tables"; }), HasSubstr("embed.weight"));
}

TEST(WeightLayout, FamiliesSayTheirAxes) {
  const Json llama{{"model_type", "llama"},    {"vocab_size", 300},       {"hidden_size", 64},
                   {"num_hidden_layers", 1},   {"intermediate_size", 80}, {"num_attention_heads", 4},
                   {"num_key_value_heads", 2}, {"head_dim", 16}};
  const Json gpt2{{"model_type", "gpt2"}, {"vocab_size", 300}, {"n_embd", 64},
                  {"n_layer", 1},         {"n_head", 4},       {"n_positions", 32}};
  const auto axis_of = [](const Json& config, std::string_view name) {
    const std::unique_ptr<Model> model = family_registry().create(config);
    for (const WeightSpec& spec : model->weights()) {
      for (const WeightPart& part : spec.parts) {
        if (!part.name.ends_with(name) || part.axes.empty()) continue;
        const PartAxis& axis = part.axes.at(0);
        return testing::PrintToString(
            std::tuple(static_cast<int>(axis.axis), axis.dimension, axis.unit, axis.sections));
      }
    }
    return std::string("none");
  };
  const auto axis = [](ShardAxis kind, std::int64_t dimension, std::int64_t unit = 1, std::int64_t sections = 1) {
    return testing::PrintToString(std::tuple(static_cast<int>(kind), dimension, unit, sections));
  };
  EXPECT_EQ(axis_of(llama, "embed_tokens.weight"), axis(ShardAxis::kVocabulary, 0));
  EXPECT_EQ(axis_of(llama, "lm_head.weight"), axis(ShardAxis::kVocabulary, 0));
  EXPECT_EQ(axis_of(llama, "k_proj.weight"), axis(ShardAxis::kHeads, 0, 16));
  EXPECT_EQ(axis_of(llama, "o_proj.weight"), axis(ShardAxis::kHeads, 1, 16));
  EXPECT_EQ(axis_of(llama, "up_proj.weight"), axis(ShardAxis::kInner, 0));
  EXPECT_EQ(axis_of(llama, "down_proj.weight"), axis(ShardAxis::kInner, 1));
  EXPECT_EQ(axis_of(llama, "input_layernorm.weight"), "none");
  EXPECT_EQ(axis_of(gpt2, "c_attn.weight"), axis(ShardAxis::kHeads, 0, 16, 3));
  EXPECT_EQ(axis_of(gpt2, "c_attn.bias"), axis(ShardAxis::kHeads, 0, 16, 3));
  EXPECT_EQ(axis_of(gpt2, "attn.c_proj.weight"), axis(ShardAxis::kHeads, 1, 16));
  EXPECT_EQ(axis_of(gpt2, "attn.c_proj.bias"), axis(ShardAxis::kWhole, 0));
  EXPECT_EQ(axis_of(gpt2, "mlp.c_proj.weight"), axis(ShardAxis::kInner, 1));
}

// Loading and saving never stage or request more than piece_bytes at a time.
TEST(WeightLayout, WeightsComeAndGoInPieces) {
  constexpr std::size_t kBound = 64;
  test::MeteredDevice device;
  const Json config{{"model_type", "llama"},  {"vocab_size", 300},       {"hidden_size", 64},
                    {"num_hidden_layers", 2}, {"intermediate_size", 80}, {"num_attention_heads", 4}};
  const std::unique_ptr<Model> model = family_registry().create(config);
  const TensorStore random = random_weights(*model, 1, DType::kF32, cpu_device());
  const TemporaryDirectory folder;
  save_model(folder.path(), *model, random, nullptr);
  const TensorStore loaded =
      load_weights(*model, ModelDirectory(folder.path()), DType::kBf16, device, Vocabulary::kAsStored, kBound);
  EXPECT_EQ(device.take_largest(), kBound);
  const TensorStore whole = load_weights(*model, ModelDirectory(folder.path()), DType::kBf16, cpu_device());
  for (const NamedType& tensor : whole.tensors()) {
    EXPECT_EQ(loaded.download(tensor.name), whole.download(tensor.name)) << tensor.name;
  }
  (void)device.take_largest();
  std::size_t largest = 0;
  std::vector<TensorSource> sources = weight_sources(model->weights(), true, loaded);
  for (TensorSource& source : sources) {
    source.piece = [&largest, piece = std::move(source.piece)](std::uint64_t begin, std::size_t most) {
      largest = std::max(largest, most);
      return piece(begin, most);
    };
  }
  write_safetensors(folder.path() / "pieces.safetensors", sources, {{"format", "pt"}}, kBound);
  EXPECT_EQ(largest, kBound);
  EXPECT_EQ(device.take_largest(), kBound);
  save_model(folder.path() / "whole", *model, whole, nullptr);
  EXPECT_EQ(read_file(folder.path() / "pieces.safetensors"), read_file(folder.path() / "whole/model.safetensors"));
}

}  // namespace
}  // namespace hone
