// hone convert between experts in single tensors and experts in one tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/fp8_tensor.h"
#include "checkpoint/model_directory.h"
#include "cli/program.h"
#include "core/float8.h"
#include "core/json_value.h"
#include "model/registry.h"
#include "model/weights.h"
#include "support/device.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void convert_experts(const fs::path& from, const fs::path& to, const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"convert", from.string(), "--output_dir", to.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ended ended = run_program(arguments);
  ASSERT_EQ(ended.code, 0) << ended.output;
}

std::string experts_refusal(const fs::path& from, const std::vector<std::string>& more) {
  const TemporaryDirectory folder;
  std::vector<std::string> arguments{"convert", from.string(), "--output_dir", (folder.path() / "out").string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ended ended = run_program(arguments);
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_EQ(std::ranges::count(ended.output, '\n'), 1) << ended.output;
  return ended.output;
}

void expect_same_tensors(const fs::path& actual, const fs::path& expected) {
  const WeightFiles files(actual);
  const WeightFiles others(expected);
  EXPECT_EQ(files.names().size(), others.names().size());
  for (const std::string& name : others.names()) {
    const StoredTensor* tensor = files.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    const StoredTensor& other = others.at(name);
    EXPECT_EQ(tensor->type, other.type) << name;
    EXPECT_EQ(tensor->shape, other.shape) << name;
    EXPECT_TRUE(std::ranges::equal(tensor->bytes, other.bytes)) << name;
  }
}

void expect_same_loaded(const fs::path& actual, const fs::path& expected) {
  const ModelDirectory directories[2]{ModelDirectory(actual), ModelDirectory(expected)};
  const std::unique_ptr<Model> model = family_registry().create(directories[0].config());
  const auto is_left_out = [&](const std::string& name) { return !model->left_out(name).empty(); };
  if (std::ranges::any_of(directories[0].weights().names(), is_left_out)) (void)model->keep_predictions();
  const TensorStore weights = load_weights(*model, directories[0], DType::kBf16, test_device());
  const TensorStore others = load_weights(*model, directories[1], DType::kBf16, test_device());
  for (const WeightSpec& spec : model->weights()) {
    EXPECT_EQ(weights.download(spec.name), others.download(spec.name)) << spec.name;
  }
}

std::int64_t count_named(const fs::path& folder, std::string_view part) {
  const std::vector<std::string> names = WeightFiles(folder).names();
  return std::ranges::count_if(names, [&](const std::string& name) { return name.find(part) != std::string::npos; });
}

// Merged, split and merged again.
void expect_there_and_back(const fs::path& split) {
  const TemporaryDirectory folder;
  const fs::path merged = folder.path() / "merged";
  convert_experts(split, merged, {"--experts", "merged", "--max_shard_size", "40KB"});
  EXPECT_GT(count_named(merged, ".mlp.experts.gate_up_proj"), 0);
  EXPECT_EQ(count_named(merged, ".experts.0."), 0);
  convert_experts(merged, folder.path() / "split", {"--experts", "split"});
  convert_experts(folder.path() / "split", folder.path() / "again", {"--experts", "merged"});
  convert_experts(merged, folder.path() / "same", {"--experts", "merged"});
  expect_same_tensors(folder.path() / "split", split);
  expect_same_tensors(folder.path() / "again", merged);
  expect_same_tensors(folder.path() / "same", merged);
  expect_same_loaded(merged, split);
}

TEST(ConvertExperts, ThereAndBackChangesNoBit) {
  for (const std::string name : {"qwen3_moe", "qwen3_moe_tied", "mixtral", "deepseek_v2", "deepseek_v3"}) {
    SCOPED_TRACE(name);
    expect_there_and_back(fixture("models") / name);
  }
}

TEST(ConvertExperts, OtherTypesAreThoseOfTheSplitModel) {
  const TemporaryDirectory folder;
  const fs::path source = fixture("models") / "mixtral";
  convert_experts(source, folder.path() / "merged", {"--experts", "merged", "--torch_dtype", "bfloat16"});
  convert_experts(source, folder.path() / "bf16", {"--torch_dtype", "bfloat16"});
  convert_experts(folder.path() / "merged", folder.path() / "split", {"--experts", "split"});
  expect_same_tensors(folder.path() / "split", folder.path() / "bf16");
}

// Writes a random model of this configuration with a layer for multi-token prediction, if it has one. Experts are in
// FP8 if `scales` is a type.
void write_random(const Json& config, const fs::path& folder, std::optional<DType> scales = {}) {
  const std::unique_ptr<Model> model = family_registry().create(config);
  (void)model->keep_predictions();
  const TensorStore weights = random_weights(*model, 5, DType::kBf16, test_device());
  const TemporaryDirectory plain;
  save_model(plain.path(), *model, weights, nullptr);
  const ModelDirectory saved(plain.path());
  std::vector<TensorSource> sources;
  std::deque<std::vector<std::byte>> kept;
  const auto add = [&](std::string name, DType dtype, const std::vector<std::int64_t>& shape,
                       std::span<const std::byte> bytes) -> TensorSource& {
    const auto& copy = kept.emplace_back(bytes.begin(), bytes.end());
    return sources.emplace_back(tensor_source(std::move(name), dtype, shape, copy));
  };
  for (const std::string& name : saved.weights().names()) {
    const StoredTensor& tensor = saved.weights().at(name);
    if (!scales || name.find(".experts.") == std::string::npos) {
      add(name, *dtype_of(tensor.type), tensor.shape, tensor.bytes);
      continue;
    }
    const std::vector<BFloat16> values = read_values<BFloat16>(tensor);
    std::vector<std::uint8_t> bytes(values.size());
    std::vector<float> numbers(static_cast<std::size_t>(scale_blocks(tensor.shape[0]) * scale_blocks(tensor.shape[1])));
    ASSERT_TRUE(quantize_e4m3_blocks(values.data(), tensor.shape[0], tensor.shape[1], bytes.data(), numbers.data()));
    // Different scales, so that none can take another's place.
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] *= 1 + static_cast<float>((name.size() + 3 * i) % 7);
    add(name, DType::kU8, tensor.shape, std::as_bytes(std::span(bytes))).written_as = StoredType::kF8E4m3;
    const std::vector<BFloat16> narrow(numbers.begin(), numbers.end());
    add(name + "_scale_inv", *scales, scales_shape(tensor.shape),
        *scales == DType::kF32 ? std::as_bytes(std::span(numbers)) : std::as_bytes(std::span(narrow)));
  }
  Json written = saved.config();
  if (scales) written[std::string(kQuantizationKey)] = fp8_quantization_config({});
  write_model_directory(folder, {.config = written, .weights = sources});
}

Json mixtral_config(std::int64_t inner) {
  return {{"model_type", "mixtral"}, {"vocab_size", 30},         {"hidden_size", 144},
          {"num_hidden_layers", 2},  {"num_attention_heads", 2}, {"intermediate_size", inner},
          {"num_local_experts", 3},  {"num_experts_per_tok", 2}};
}

Json predicting_config() {
  Json config = ModelDirectory(fixture("models") / "deepseek_v3").config();
  config["num_nextn_predict_layers"] = 1;
  return config;
}

TEST(ConvertExperts, Fp8KeepsItsNumbersAndScales) {
  for (const DType scales : {DType::kF32, DType::kBf16}) {
    const TemporaryDirectory folder;
    write_random(mixtral_config(256), folder.path() / "split", scales);
    expect_there_and_back(folder.path() / "split");
    const fs::path merged = folder.path() / "merged";
    convert_experts(folder.path() / "split", merged, {"--experts", "merged"});
    const WeightFiles files(merged);
    EXPECT_EQ(files.at("model.layers.1.mlp.experts.gate_up_proj").type, StoredType::kF8E4m3);
    EXPECT_EQ(files.at("model.layers.1.mlp.experts.gate_up_proj_scale_inv").shape,
              (std::vector<std::int64_t>{3, 4, 2}));
    EXPECT_EQ(files.at("model.layers.1.mlp.experts.down_proj_scale_inv").shape, (std::vector<std::int64_t>{3, 2, 2}));
    // Converted to bf16 and merged in one step, or one after the other.
    convert_experts(folder.path() / "split", folder.path() / "both", {"--experts", "merged", "--quantization", "none"});
    convert_experts(merged, folder.path() / "after", {"--quantization", "none"});
    expect_same_tensors(folder.path() / "both", folder.path() / "after");
    EXPECT_EQ(WeightFiles(folder.path() / "both").at("model.layers.1.mlp.experts.down_proj").type, StoredType::kBf16);
  }
}

TEST(ConvertExperts, TheLayerForMultiTokenPredictionIsConverted) {
  const TemporaryDirectory folder;
  write_random(predicting_config(), folder.path() / "split");
  expect_there_and_back(folder.path() / "split");
  const std::int64_t layer = predicting_config()["num_hidden_layers"].get<std::int64_t>();
  convert_experts(folder.path() / "split", folder.path() / "merged", {"--experts", "merged"});
  EXPECT_EQ(count_named(folder.path() / "merged", text_of("layers.", layer, ".mlp.experts.")), 2);
}

// Modules in bf16 next to linear layers in FP8 are named as transformers and vLLM look them up.
TEST(ConvertExperts, Fp8LinearLayersNameTheExpertsThatStay) {
  const TemporaryDirectory folder;
  for (const std::string layout : {"split", "merged"}) {
    const fs::path to = folder.path() / layout;
    convert_experts(fixture("models") / "qwen3_moe", to, {"--quantization", "fp8", "--experts", layout});
    const Json config = read_json(to / "config.json");
    const auto kept = config["quantization_config"]["modules_to_not_convert"].get<std::vector<std::string>>();
    EXPECT_EQ(std::ranges::count(kept, "model.layers.1.mlp.experts"), 1);
  }
  const fs::path from_merged = folder.path() / "from_merged";
  convert_experts(fixture("models") / "qwen3_moe", folder.path() / "plain", {"--experts", "merged"});
  convert_experts(folder.path() / "plain", from_merged, {"--quantization", "fp8"});
  expect_same_tensors(from_merged, folder.path() / "merged");
  EXPECT_EQ(read_json(from_merged / "config.json"), read_json(folder.path() / "merged" / "config.json"));
}

// Copies a folder without some tensors, and with a changed configuration.
void copy_changed(const fs::path& from, const fs::path& to, const Json& changes,
                  const std::function<bool(const std::string&)>& drops = {}) {
  const ModelDirectory directory(from);
  std::vector<TensorSource> sources;
  for (const std::string& name : directory.weights().names()) {
    if (drops && drops(name)) continue;
    const StoredTensor& tensor = directory.weights().at(name);
    sources.push_back(tensor_source(name, dtype_of(tensor.type).value_or(DType::kU8), tensor.shape, tensor.bytes));
    if (tensor.type == StoredType::kF8E4m3) sources.back().written_as = tensor.type;
  }
  Json config = directory.config();
  config.update(changes);
  write_model_directory(to, {.config = config, .weights = sources});
}

TEST(ConvertExperts, AnotherNumberOfExpertsIsRefusedInOneLine) {
  const TemporaryDirectory folder;
  const auto refused = [&](const fs::path& from, const Json& changes) {
    const TemporaryDirectory changed;
    copy_changed(from, changed.path(), changes);
    const std::string line = experts_refusal(changed.path(), {"--experts", "split"});
    // Loading refuses it with the same line.
    const ModelDirectory directory(changed.path());
    const std::unique_ptr<Model> model = family_registry().create(directory.config());
    try {
      (void)load_weights(*model, directory, DType::kF32, test_device());
      ADD_FAILURE() << "the weights were loaded";
    } catch (const Error& error) {
      EXPECT_THAT(line, HasSubstr(error.what()));
    }
    return line;
  };
  const fs::path split = fixture("models") / "qwen3_moe";
  const std::int64_t experts = ModelDirectory(split).config()["num_experts"].get<std::int64_t>();
  const fs::path merged = folder.path() / "merged";
  convert_experts(split, merged, {"--experts", "merged"});
  for (const std::int64_t other : {experts - 1, experts + 1}) {
    EXPECT_THAT(refused(split, {{"num_experts", other}}),
                HasSubstr(text_of("holds ", experts, " experts in model.layers.1",
                                  ".mlp.experts, but 'num_experts' of config.json is ", other)));
    EXPECT_THAT(refused(merged, {{"num_experts", other}}),
                HasSubstr(text_of("holds ", experts, " experts in model.layers.1",
                                  ".mlp.experts.gate_up_proj, but 'num_experts' of config.json is ", other)));
  }
  const fs::path deepseek = fixture("models") / "deepseek_v3";
  EXPECT_THAT(refused(deepseek, {{"n_routed_experts", 4}, {"n_group", 1}, {"topk_group", 1}}),
              HasSubstr("but 'n_routed_experts' of config.json is 4"));
}

TEST(ConvertExperts, WhatCannotBeMergedIsRefusedInOneLine) {
  const TemporaryDirectory folder;
  EXPECT_THAT(experts_refusal(fixture("models") / "llama", {"--experts", "merged"}),
              HasSubstr("this model has no mixture of experts"));
  EXPECT_THAT(experts_refusal(fixture("models") / "mixtral", {"--experts", "joined"}),
              HasSubstr("expected one of auto, split, merged"));
  // Half of a block of 128 rows would have another scale.
  write_random(mixtral_config(192), folder.path() / "odd", DType::kF32);
  EXPECT_THAT(experts_refusal(folder.path() / "odd", {"--experts", "merged"}),
              HasSubstr("begins at its row 192, inside of a block of 128 x 128"));
  convert_experts(folder.path() / "odd", folder.path() / "bf16", {"--experts", "merged", "--quantization", "none"});
  const std::string scales = "model.layers.1.block_sparse_moe.experts.2.w2.weight_scale_inv";
  write_random(mixtral_config(128), folder.path() / "fp8", DType::kF32);
  copy_changed(folder.path() / "fp8", folder.path() / "missing", Json::object(),
               [&](const std::string& name) { return name == scales; });
  EXPECT_THAT(experts_refusal(folder.path() / "missing", {"--experts", "merged"}),
              HasSubstr(text_of("there is no tensor '", scales, "' with its scales")));
  copy_changed(folder.path() / "fp8", folder.path() / "lost", Json::object(),
               [](const std::string& name) { return name.ends_with("1.block_sparse_moe.experts.1.w3.weight"); });
  EXPECT_THAT(experts_refusal(folder.path() / "lost", {"--experts", "merged"}), HasSubstr("experts.1.w3.weight"));
}

TEST(ConvertExperts, OneTensorInAnotherTypeIsNamed) {
  const TemporaryDirectory folder;
  write_random(mixtral_config(128), folder.path() / "bf16");
  write_random(mixtral_config(128), folder.path() / "fp8", DType::kF32);
  const ModelDirectory one(folder.path() / "bf16");
  const ModelDirectory other(folder.path() / "fp8");
  const std::string odd = "model.layers.0.block_sparse_moe.experts.1.w1.weight";
  std::vector<TensorSource> sources;
  for (const std::string& name : one.weights().names()) {
    const StoredTensor& tensor = (name == odd ? other : one).weights().at(name);
    sources.push_back(tensor_source(name, dtype_of(tensor.type).value_or(DType::kU8), tensor.shape, tensor.bytes));
    if (name != odd) continue;
    sources.back().written_as = tensor.type;
    const StoredTensor& scales = other.weights().at(name + "_scale_inv");
    sources.push_back(tensor_source(scales.name, DType::kF32, scales.shape, scales.bytes));
  }
  write_model_directory(folder.path() / "mixed", {.config = one.config(), .weights = sources});
  EXPECT_THAT(experts_refusal(folder.path() / "mixed", {"--experts", "merged"}),
              HasSubstr(text_of("tensor ", odd, " is F8_E4M3, but")));
  convert_experts(folder.path() / "mixed", folder.path() / "merged",
                  {"--experts", "merged", "--torch_dtype", "bfloat16"});
}

}  // namespace
}  // namespace hone::test
