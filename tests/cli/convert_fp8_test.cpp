// hone convert to FP8 and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/fp8_tensor.h"
#include "checkpoint/model_directory.h"
#include "cli/program.h"
#include "core/files.h"
#include "core/json_value.h"
#include "model/fp8_model.h"
#include "model/registry.h"
#include "model/weights.h"
#include "support/device.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

void convert(const fs::path& from, const fs::path& to, const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"convert", from.string(), "--output_dir", to.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ended ended = run_program(arguments);
  ASSERT_EQ(ended.code, 0) << ended.output;
}

std::string refusal(const fs::path& from, const std::vector<std::string>& more) {
  const TemporaryDirectory folder;
  std::vector<std::string> arguments{"convert", from.string(), "--output_dir", (folder.path() / "out").string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ended ended = run_program(arguments);
  EXPECT_EQ(ended.code, 1) << ended.output;
  return ended.output;
}

// Expects the weights of a folder, loaded as FP8, to be those of another one.
void expect_same_weights(const fs::path& actual, const fs::path& expected) {
  const ModelDirectory directories[2]{ModelDirectory(actual), ModelDirectory(expected)};
  const Fp8Model model(family_registry().create(directories[0].config()));
  const TensorStore weights = load_weights(model, directories[0], DType::kBf16, test_device());
  const TensorStore others = load_weights(model, directories[1], DType::kBf16, test_device());
  int in_fp8 = 0;
  for (const WeightSpec& spec : model.weights()) {
    EXPECT_EQ(weights.download(spec.name), others.download(spec.name)) << spec.name;
    in_fp8 += is_fp8_block(spec) ? 1 : 0;
  }
  EXPECT_GT(in_fp8, 0);
}

// The tensors are those that generation with --quantization fp8 makes of the folder.
TEST(ConvertFp8, WritesTheWeightsOfGeneration) {
  for (const std::string name : {"llama", "qwen2_tied", "qwen3_moe", "deepseek_v3"}) {
    const TemporaryDirectory folder;
    const fs::path source = fixture("models") / name;
    const fs::path fp8 = folder.path() / "fp8";
    convert(source, fp8, {"--quantization", "fp8", "--max_shard_size", "40KB"});
    expect_same_weights(fp8, source);
    const ModelDirectory directory(fp8);
    const Json& config = directory.config();
    EXPECT_NO_THROW(check_quantization(config, "config.json"));
    ASSERT_TRUE(config.contains("quantization_config")) << name;
    const auto kept = config["quantization_config"]["modules_to_not_convert"].get<std::vector<std::string>>();
    EXPECT_GT(std::ranges::count(kept, "model.embed_tokens"), 0) << name;
    for (const std::string& tensor : directory.weights().names()) {
      const bool in_fp8 = directory.weights().at(tensor).type == StoredType::kF8E4m3;
      const bool is_kept = std::ranges::count(kept, tensor.substr(0, tensor.rfind('.'))) > 0;
      EXPECT_FALSE(in_fp8 && is_kept) << tensor;
      if (tensor.ends_with("o_proj.weight")) {
        EXPECT_TRUE(in_fp8) << tensor;
      }
    }
  }
}

TEST(ConvertFp8, KeepsFp8AndConvertsItBack) {
  const TemporaryDirectory folder;
  const fs::path fp8 = folder.path() / "fp8";
  convert(fixture("models") / "llama", fp8, {"--quantization", "fp8"});
  convert(fp8, folder.path() / "again", {});
  EXPECT_EQ(read_file(folder.path() / "again" / "model.safetensors"), read_file(fp8 / "model.safetensors"));
  EXPECT_EQ(read_json(folder.path() / "again" / "config.json"), read_json(fp8 / "config.json"));
  const ModelDirectory quantized(fp8);
  // Without torch_dtype, what was in FP8 becomes bf16 and the others stay.
  for (const auto& [flags, wanted] :
       {std::pair<std::vector<std::string>, std::optional<DType>>{{"--quantization", "none"}, std::nullopt},
        {{"--torch_dtype", "bfloat16"}, DType::kBf16},
        {{"--torch_dtype", "float32"}, DType::kF32}}) {
    const fs::path back = folder.path() / flags.back();
    convert(fp8, back, flags);
    const ModelDirectory directory(back);
    EXPECT_FALSE(directory.config().contains("quantization_config"));
    EXPECT_FALSE(has_fp8(directory.weights()));
    for (const std::string& name : directory.weights().names()) {
      const StoredTensor& tensor = directory.weights().at(name);
      const StoredTensor& before = quantized.weights().at(name);
      const DType dtype = wanted.value_or(dtype_of(before.type).value_or(DType::kBf16));
      std::vector<std::byte> expected(static_cast<std::size_t>(before.element_count()) * size_of(dtype));
      EXPECT_EQ(tensor.type, stored_type_of(dtype)) << name;
      read_as(with_scales(before, quantized.weights()), dtype, 0, expected);
      EXPECT_TRUE(std::ranges::equal(tensor.bytes, expected)) << name;
    }
  }
}

// The other tensors are as torch_dtype says.
TEST(ConvertFp8, ConvertsTheOtherTensors) {
  const TemporaryDirectory folder;
  const fs::path fp8 = folder.path() / "fp8";
  convert(fixture("models") / "qwen2_tied", fp8, {"--quantization", "fp8", "--torch_dtype", "bfloat16"});
  expect_same_weights(fp8, fixture("models") / "qwen2_tied");
  const ModelDirectory directory(fp8);
  const Json& config = directory.config();
  EXPECT_EQ(config[config.contains("dtype") ? "dtype" : "torch_dtype"], "bfloat16");
  EXPECT_EQ(directory.weights().at("model.norm.weight").type, StoredType::kBf16);
  EXPECT_EQ(directory.weights().at("model.layers.0.mlp.down_proj.weight_scale_inv").type, StoredType::kF32);
}

TEST(ConvertFp8, RefusesWhatHasNoFp8) {
  EXPECT_THAT(refusal(fixture("models") / "gpt2", {"--quantization", "fp8"}),
              testing::HasSubstr("this model has no matrices that are stored in FP8"));
  EXPECT_THAT(refusal(fixture("models") / "llama", {"--quantization", "fp8", "--torch_dtype", "float32"}),
              testing::HasSubstr("fp8 with torch_dtype float32"));
  EXPECT_THAT(refusal(fixture("models") / "llama", {"--quantization", "fp4"}), testing::HasSubstr("quantization"));
  EXPECT_THAT(refusal(fixture("models") / "llama", {"--quantization", "w8a8_fp8"}),
              testing::HasSubstr("--quantization: w8a8_fp8, but activations are quantized in generation (fp8, which"));
}

}  // namespace
}  // namespace hone::test
