// Optimizer states in a checkpoint: names, shapes, transfer in pieces, and the first file format.
#include "model/state_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "checkpoint/training_state.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/random.h"
#include "model/lora.h"
#include "support/metered_device.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

// Returns the optimizer store of a model, filled with random bytes.
TensorStore filled_store(const Model& model, DType dtype, const OptimizerOptions& options, Device& device) {
  TensorStore store(device, update_store(model, dtype, options, kOptimizerStore));
  for (const NamedType& tensor : store.tensors()) {
    const RandomStream random(3, tensor.name);
    std::vector<std::byte> bytes(tensor.type.bytes());
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random.below(i, 256));
    device.upload(store.data(tensor.name), bytes.data(), bytes.size());
  }
  return store;
}

void expect_same(const TensorStore& store, const TensorStore& expected) {
  ASSERT_EQ(store.tensors().size(), expected.tensors().size());
  for (const NamedType& tensor : expected.tensors()) {
    EXPECT_EQ(store.download(tensor.name), expected.download(tensor.name)) << tensor.name;
  }
}

std::unique_ptr<Model> model_of(const Json& config, const std::vector<std::string>& adapted = {}) {
  std::unique_ptr<Model> base = family_registry().create(config);
  if (adapted.empty()) return base;
  LoraConfig lora;
  lora.r = 4;
  lora.target_modules = adapted;
  lora.modules_to_save = {"lm_head"};
  lora.bias = LoraBias::kLoraOnly;
  return std::make_unique<LoraModel>(std::move(base), lora);
}

// A configuration in which q, k and v have 4, 2 and 2 heads of 16, and no part of the embedding ends at a multiple of
// 256 elements.
Json small_config(const char* type) {
  return {{"model_type", type},       {"vocab_size", 301},       {"hidden_size", 64},
          {"num_hidden_layers", 2},   {"intermediate_size", 83}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"head_dim", 16},          {"tie_word_embeddings", true}};
}
Json gpt2_config() {
  return {{"model_type", "gpt2"}, {"vocab_size", 301}, {"n_embd", 64},     {"n_layer", 1},
          {"n_head", 4},          {"n_inner", 83},     {"n_positions", 32}};
}

// The first layer is dense; an expert's matrices have 24 x 64 elements, which no group of 256 crosses.
Json mixture_config() {
  Json config = small_config("qwen3_moe");
  config.update(
      {{"num_experts", 5}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}, {"mlp_only_layers", {0}}});
  return config;
}

// Four groups of two experts; the biases of the experts are not trained.
Json deepseek_config() {
  Json config = small_config("deepseek_v3");
  config.erase("head_dim");
  config.update({{"num_key_value_heads", 4},
                 {"q_lora_rank", 24},
                 {"kv_lora_rank", 20},
                 {"qk_nope_head_dim", 16},
                 {"qk_rope_head_dim", 8},
                 {"v_head_dim", 12},
                 {"n_routed_experts", 8},
                 {"n_shared_experts", 1},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 24},
                 {"n_group", 4},
                 {"topk_group", 2},
                 {"first_k_dense_replace", 1}});
  return config;
}

struct StateCase {
  const char* name;
  Json config;
  std::vector<std::string> adapted;
  DType dtype;
  OptimizerOptions options;
};

std::vector<StateCase> cases() {
  const OptimizerOptions codes{.moments = MomentFormat::kInt8};
  const OptimizerOptions muon{.rule = UpdateRule::kMuon};
  return {{"adamw", small_config("qwen2"), {}, DType::kF32, {}},
          {"masters", small_config("qwen3"), {}, DType::kBf16, {}},
          {"8 bit", small_config("qwen2"), {}, DType::kBf16, codes},
          {"muon", small_config("llama"), {}, DType::kBf16, muon},
          {"transposed", gpt2_config(), {}, DType::kF32, {}},
          {"adapter", small_config("qwen2"), {"q_proj", "v_proj", "embed_tokens"}, DType::kBf16, {}},
          {"adapter 8 bit", small_config("qwen2"), {"q_proj", "v_proj"}, DType::kF32, codes},
          {"mixture", mixture_config(), {}, DType::kBf16, {}},
          {"mixture 8 bit", mixture_config(), {}, DType::kBf16, codes},
          {"deepseek", deepseek_config(), {}, DType::kBf16, {}},
          {"deepseek 8 bit", deepseek_config(), {}, DType::kBf16, codes}};
}

std::map<std::string, std::vector<std::int64_t>> shapes_in(const SafetensorsFile& file) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const StoredTensor& tensor : file.tensors()) shapes[tensor.name] = tensor.shape;
  return shapes;
}

void write_states(const std::filesystem::path& path, const Model& model, const TensorStore& store,
                  std::size_t piece_bytes = kPieceBytes) {
  const StateLayout layout(model.weights());
  write_safetensors(path, state_sources(layout, store, "optimizer."), {}, piece_bytes);
}

TEST(StateTensors, AreNamedAndShapedByTheCheckpointsParts) {
  const TemporaryDirectory folder;
  const auto shapes_of = [&](const StateCase& each) {
    const std::unique_ptr<Model> model = model_of(each.config, each.adapted);
    write_states(folder.path() / "x", *model, filled_store(*model, each.dtype, each.options, cpu_device()));
    return shapes_in(SafetensorsFile(folder.path() / "x"));
  };
  using Shape = std::vector<std::int64_t>;
  const std::vector<StateCase> all = cases();
  const auto wide = shapes_of(all[0]);
  EXPECT_EQ(wide.at("optimizer.model.layers.0.self_attn.q_proj.weight.exp_avg"), (Shape{64, 64}));
  EXPECT_EQ(wide.at("optimizer.model.layers.1.self_attn.v_proj.weight.exp_avg_sq"), (Shape{32, 64}));
  EXPECT_EQ(wide.at("optimizer.model.layers.1.self_attn.k_proj.bias.exp_avg_sq"), (Shape{32}));
  EXPECT_EQ(wide.at("optimizer.nonfinite"), (Shape{1}));
  for (const auto& [name, shape] : wide) EXPECT_EQ(name.find("qkv"), std::string::npos) << name;
  const auto codes = shapes_of(all[2]);
  EXPECT_EQ(codes.at("optimizer.model.layers.0.self_attn.k_proj.weight.exp_avg"), (Shape{32, 64}));
  EXPECT_EQ(codes.at("optimizer.model.layers.0.self_attn.k_proj.weight.exp_avg_scale"), (Shape{8}));
  EXPECT_EQ(codes.at("optimizer.model.embed_tokens.weight.exp_avg_scale"), (Shape{76}));
  // 83 rows of 64 elements end inside a group of 256.
  EXPECT_EQ(codes.at("optimizer.layers.0.mlp.gate_up.exp_avg_sq_scale"), (Shape{42}));
  EXPECT_EQ(codes.at("optimizer.model.layers.0.mlp.up_proj.weight.exp_avg_sq"), (Shape{83, 64}));
  const auto transposed = shapes_of(all[4]);
  EXPECT_EQ(transposed.at("optimizer.transformer.h.0.mlp.c_fc.weight.exp_avg"), (Shape{83, 64}));
  const auto mixture = shapes_of(all[7]);
  EXPECT_EQ(mixture.at("optimizer.model.layers.1.mlp.experts.4.down_proj.weight.exp_avg"), (Shape{64, 24}));
  EXPECT_EQ(mixture.at("optimizer.model.layers.1.mlp.gate.weight.master"), (Shape{5, 64}));
  const auto deepseek = shapes_of(all[9]);
  EXPECT_EQ(deepseek.at("optimizer.model.layers.1.mlp.gate.weight.master"), (Shape{8, 64}));
  EXPECT_EQ(deepseek.at("optimizer.model.layers.0.self_attn.kv_b_proj.weight.exp_avg"), (Shape{4 * 28, 20}));
  for (const auto& [name, shape] : deepseek) EXPECT_EQ(name.find("correction_bias"), std::string::npos) << name;
  const auto adapter = shapes_of(all[5]);
  const std::string q = "optimizer.base_model.model.model.layers.0.self_attn.q_proj";
  EXPECT_EQ(adapter.at(q + ".lora_B.weight.master"), (Shape{64, 4}));
  EXPECT_EQ(adapter.at(q + ".base_layer.bias.exp_avg"), (Shape{64}));
  EXPECT_EQ(adapter.at("optimizer.layers.0.attention.qkv.lora_B.master@64,0"), (Shape{32, 4}));  // part of k
  EXPECT_EQ(adapter.at("optimizer.layers.0.attention.qkv_bias.saved.exp_avg@64"), (Shape{32}));
}

TEST(StateTensors, ComeBackInPieces) {
  constexpr std::size_t kBound = 100;
  const TemporaryDirectory folder;
  for (const StateCase& each : cases()) {
    SCOPED_TRACE(each.name);
    const std::unique_ptr<Model> model = model_of(each.config, each.adapted);
    MeteredDevice device;
    const TensorStore store = filled_store(*model, each.dtype, each.options, device);
    write_states(folder.path() / "whole", *model, store);
    (void)device.take_largest();
    write_states(folder.path() / "x", *model, store, kBound);
    EXPECT_EQ(device.take_largest(), kBound);
    EXPECT_EQ(read_file(folder.path() / "x"), read_file(folder.path() / "whole"));
    TensorStore back(device, store.tensors());
    const SafetensorsFile file(folder.path() / "x");
    load_states(StateLayout(model->weights()), PiecedTensors(file), "optimizer.", back, kBound);
    EXPECT_EQ(device.take_largest(), kBound);
    expect_same(back, store);
  }
}

// Loads states as a run on several devices would write them: each tensor in two pieces along its last dimension.
TEST(StateTensors, ComeBackFromShards) {
  const TemporaryDirectory folder;
  const StateCase each = cases()[0];
  const std::unique_ptr<Model> model = model_of(each.config);
  const TensorStore store = filled_store(*model, each.dtype, each.options, cpu_device());
  write_states(folder.path() / "whole", *model, store);
  const SafetensorsFile whole(folder.path() / "whole");
  std::vector<TensorSource> sources;
  for (const StoredTensor& tensor : whole.tensors()) {
    const DType dtype = dtype_of(tensor.type).value();
    const auto columns = tensor.shape.back();
    for (const auto& [begin, end] : {std::pair(std::int64_t{0}, columns / 2), std::pair(columns / 2, columns)}) {
      std::vector<std::int64_t> shape = tensor.shape;
      shape.back() = end - begin;
      if (begin == end) continue;
      const auto half = std::make_shared<std::vector<std::byte>>();
      const std::size_t size = size_of(dtype);
      for (std::int64_t row = 0; row < tensor.element_count() / columns; ++row) {
        const auto from = tensor.bytes.subspan(static_cast<std::size_t>(row * columns + begin) * size,
                                               static_cast<std::size_t>(end - begin) * size);
        half->insert(half->end(), from.begin(), from.end());
      }
      TensorPlace place{std::vector<std::int64_t>(shape.size(), 0), tensor.shape};
      place.offset.back() = begin;
      sources.push_back(
          {tensor.name, dtype, shape,
           [half](std::uint64_t at, std::size_t most) { return std::span<const std::byte>(*half).subspan(at, most); },
           std::move(place)});
    }
  }
  write_safetensors(folder.path() / "shards", sources);
  TensorStore back(cpu_device(), store.tensors());
  const SafetensorsFile file(folder.path() / "shards");
  load_states(StateLayout(model->weights()), PiecedTensors(file), "optimizer.", back, 40);
  expect_same(back, store);
}

TEST(StateTensors, TheFirstFormatIsRead) {
  const TemporaryDirectory folder;
  for (const StateCase& each : cases()) {
    SCOPED_TRACE(each.name);
    const std::unique_ptr<Model> model = model_of(each.config, each.adapted);
    const TensorStore store = filled_store(*model, each.dtype, each.options, cpu_device());
    std::vector<std::vector<std::byte>> bytes;
    std::vector<TensorSource> sources;
    bytes.reserve(store.tensors().size());
    for (const NamedType& tensor : store.tensors()) {
      std::vector<std::int64_t> shape;
      for (const Dim& dim : tensor.type.shape) shape.push_back(dim.size);
      bytes.push_back(store.download(tensor.name));
      sources.push_back(tensor_source("optimizer." + tensor.name, tensor.type.dtype, shape, bytes.back()));
    }
    write_safetensors(folder.path() / "x", sources);
    TensorStore back(cpu_device(), store.tensors());
    const SafetensorsFile file(folder.path() / "x");
    load_states(StateLayout(model->weights(), StateNames::kBlocks), PiecedTensors(file), "optimizer.", back);
    expect_same(back, store);
  }
}

TEST(StateTensors, FilesOfAnotherModelAreNamed) {
  const TemporaryDirectory folder;
  const std::unique_ptr<Model> model = model_of(small_config("qwen2"));
  const TensorStore store = filled_store(*model, DType::kF32, {}, cpu_device());
  write_states(folder.path() / "x", *model, store);
  const SafetensorsFile file(folder.path() / "x");
  const auto error_of = [&](const Json& config, const OptimizerOptions& options) -> std::string {
    const std::unique_ptr<Model> other = model_of(config);
    TensorStore back(cpu_device(), update_store(*other, DType::kF32, options, kOptimizerStore));
    try {
      load_states(StateLayout(other->weights()), PiecedTensors(file), "optimizer.", back);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(file.name()), testing::Not(HasSubstr("\n"))));
      return error.what();
    }
    return "";
  };
  Json wider = small_config("qwen2");
  wider["intermediate_size"] = 84;
  EXPECT_THAT(error_of(wider, {}), HasSubstr("tensor 'optimizer.model.layers.0.mlp.gate_proj.weight.exp_avg' is "
                                             "[83, 64], expected [84, 64]"));
  Json deeper = small_config("qwen2");
  deeper["num_hidden_layers"] = 3;
  EXPECT_THAT(error_of(deeper, {}), HasSubstr("holds no tensor 'optimizer.model.layers.2."));
  EXPECT_THAT(error_of(small_config("qwen2"), {.rule = UpdateRule::kMuon}), HasSubstr("weight.momentum'"));
}

TEST(StateTensors, AFormatOfTheFutureIsRefused) {
  const TemporaryDirectory folder;
  CheckpointStore store(folder.path());
  const std::vector<float> values(4);
  const std::vector<TensorSource> sources{tensor_source("w", {4}, std::span(values))};
  const auto checkpoint = store.save({.step = 1, .state = Json::object(), .tensors = sources, .write_model = {}});
  EXPECT_EQ(TrainingState(checkpoint).format(), kStateFormat);
  const auto rewrite = [&](const std::map<std::string, std::string>& metadata) {
    write_safetensors(checkpoint / "optimizer.safetensors", sources, metadata);
    Json state = read_json(checkpoint / "training_state.json");
    state["files"]["optimizer.safetensors"] = std::filesystem::file_size(checkpoint / "optimizer.safetensors");
    write_json(checkpoint / "training_state.json", state);
  };
  rewrite({{"format", "pt"}});
  EXPECT_EQ(TrainingState(checkpoint).format(), 1);
  rewrite({{"format", "pt"}, {"hone_format", "3"}});
  try {
    const TrainingState state(checkpoint);
    FAIL() << "format 3 was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("optimizer.safetensors: has format '3'"));
  }
}

}  // namespace
}  // namespace hone::test
