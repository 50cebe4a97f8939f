// FP8 weights in generation: loading them, and the tokens of a model with them, which are those of the same weights in
// bf16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/fp8_tensor.h"
#include "core/error.h"
#include "core/files.h"
#include "core/float8.h"
#include "core/json_value.h"
#include "core/random.h"
#include "engine/engine.h"
#include "model/adapter_slots.h"
#include "model/fp8_model.h"
#include "model/loaded_model.h"
#include "support/device.h"
#include "support/fp8_fragments.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// A folder with FP8 weights, the same weights in bf16, and those that were quantized.
struct Fp8Folders {
  fs::path fp8, bf16, source;
};

struct HeldTensor {
  std::string name;
  DType dtype;  // u8: FP8
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

// hone writes no FP8: bytes are written as U8, and their type is changed in the header.
void name_as_fp8(const fs::path& path) {
  std::string file = read_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  std::string header = file.substr(sizeof length, length);
  const std::string from = R"("dtype":"U8")";
  for (std::size_t at = header.find(from); at != std::string::npos; at = header.find(from)) {
    header.replace(at, from.size(), R"("dtype":"F8_E4M3")");
  }
  const std::uint64_t new_length = header.size();
  std::string begin(sizeof new_length, '\0');
  std::memcpy(begin.data(), &new_length, sizeof new_length);
  write_file(path, begin + header + file.substr(sizeof length + length));
}

void write_tensors(const fs::path& path, const Json& config, const std::vector<HeldTensor>& tensors) {
  std::vector<TensorSource> sources;
  for (const HeldTensor& each : tensors)
    sources.push_back(tensor_source(each.name, each.dtype, each.shape, each.bytes));
  write_model_directory(path, {.config = config, .generation_config = nullptr, .weights = sources});
  name_as_fp8(path / "model.safetensors");
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// The tensors of linear layers of a fixture model.
std::vector<std::string> linear_tensors(const Model& model) {
  std::vector<std::string> names;
  for (const WeightSpec& spec : model.weights()) {
    if (spec.kind != WeightKind::linear) continue;
    for (const WeightPart& part : spec.parts) names.push_back(part.name);
  }
  return names;
}

// Writes a fixture model with linear layers in FP8, whose scales are powers of two or not, and its weights in bf16.
Fp8Folders write_fp8_folders(const fs::path& folder, std::string_view fixture_name, bool powers_of_two) {
  const ModelDirectory original(fixture("models") / fixture_name);
  const std::vector<std::string> linear = linear_tensors(*family_registry().create(original.config()));
  std::vector<HeldTensor> fp8;
  std::vector<HeldTensor> bf16;
  std::vector<HeldTensor> source;
  for (const std::string& name : original.weights().names()) {
    const StoredTensor& tensor = original.weights().at(name);
    std::vector<BFloat16> values = read_values<BFloat16>(tensor);
    source.push_back({name, DType::kBf16, tensor.shape, bytes_of(values)});
    if (std::ranges::count(linear, name) > 0) {
      const std::int64_t rows = tensor.shape[0];
      const std::int64_t columns = tensor.shape[1];
      std::vector<std::uint8_t> bytes(values.size());
      std::vector<float> scales(static_cast<std::size_t>(scale_blocks(rows) * scale_blocks(columns)));
      EXPECT_TRUE(quantize_e4m3_blocks(values.data(), rows, columns, bytes.data(), scales.data()));
      for (float& scale : scales) scale *= powers_of_two ? 1.0F : 1.37F;
      for (std::int64_t row = 0; row < rows; ++row) {
        dequantize_e4m3_row(bytes.data() + row * columns, scales.data() + row / kScaleBlock * scale_blocks(columns), 0,
                            columns, values.data() + row * columns);
      }
      fp8.push_back({name, DType::kU8, tensor.shape, bytes_of(bytes)});
      fp8.push_back({name + "_scale_inv", DType::kF32, {scale_blocks(rows), scale_blocks(columns)}, bytes_of(scales)});
    } else {
      fp8.push_back({name, DType::kBf16, tensor.shape, bytes_of(values)});
    }
    bf16.push_back({name, DType::kBf16, tensor.shape, bytes_of(values)});
  }
  Json config = original.config();
  write_tensors(folder / "bf16", config, bf16);
  write_tensors(folder / "source", config, source);
  config["quantization_config"] = fp8_quantization_config({"lm_head"});
  write_tensors(folder / "fp8", config, fp8);
  return {folder / "fp8", folder / "bf16", folder / "source"};
}

struct Fp8Loaded {
  std::unique_ptr<Model> model;
  TensorStore weights;
};

Fp8Loaded load(const fs::path& path, bool fp8, DType dtype = DType::kBf16) {
  const ModelDirectory directory(path);
  std::unique_ptr<Model> model = family_registry().create(directory.config());
  if (fp8) model = std::make_unique<Fp8Model>(std::move(model));
  TensorStore weights = load_weights(*model, directory, dtype, test_device());
  return {std::move(model), std::move(weights)};
}

std::vector<Request> fp8_requests(std::int64_t count, std::int64_t vocab) {
  const RandomStream random(5, "fp8 requests");
  std::vector<Request> requests;
  std::uint64_t at = 0;
  std::vector<TokenId> beginning(20);
  for (TokenId& token : beginning) token = static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab)));
  for (std::int64_t i = 0; i < count; ++i) {
    Request request;
    if (i % 2 == 0) request.prompt = beginning;
    for (std::uint64_t t = 1 + random.below(at++, 30); t > 0; --t) {
      request.prompt.push_back(static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))));
    }
    request.sampling.temperature = i % 3 == 0 ? 0 : 1;
    request.sampling.max_tokens = 4 + i % 20;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Completion> complete(const Fp8Loaded& loaded, std::span<const Request> requests,
                                 const EngineOptions& options) {
  const Tokenizer tokenizer = letter_tokenizer(loaded.model->shape().vocab_size);
  Engine engine(*loaded.model, tokenizer, loaded.weights, std::make_shared<Arena>(test_device()), options);
  return engine.generate(requests);
}

void expect_same(std::span<const Completion> actual, std::span<const Completion> expected, std::string_view which) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].tokens, expected[i].tokens) << which << ", request " << i;
    ASSERT_EQ(actual[i].logps, expected[i].logps) << which << ", request " << i;
  }
}

// Alone, together, in chunks, with and without the prefix cache, and with proposed tokens.
TEST(Fp8, GeneratesTheTokensOfTheWeightsInBf16) {
  for (const std::string_view name : {"llama", "qwen2", "qwen3", "deepseek_v3", "gpt2", "qwen3_moe"}) {
    for (const bool powers_of_two : {true, false}) {
      const TemporaryDirectory folder;
      const Fp8Folders folders = write_fp8_folders(folder.path(), name, powers_of_two);
      const Fp8Loaded fp8 = load(folders.fp8, true);
      const Fp8Loaded bf16 = load(folders.bf16, false);
      const std::string which = std::string(name) + (powers_of_two ? "" : " with any scales");
      EXPECT_LT(fp8.weights.bytes(), bf16.weights.bytes()) << which;
      const std::vector<Request> requests = fp8_requests(17, fp8.model->shape().vocab_size);
      const EngineOptions wide{.max_model_len = 96, .max_num_seqs = 17, .max_batch_tokens = 600};
      const std::vector<Completion> expected = complete(bf16, requests, wide);
      expect_same(complete(fp8, requests, wide), expected, which);
      EngineOptions chunked{.max_model_len = 96, .max_num_seqs = 5, .max_batch_tokens = 7, .block_size = 8};
      for (const bool cache : {true, false}) {
        chunked.enable_prefix_caching = cache;
        expect_same(complete(fp8, requests, chunked), expected, which + " in chunks");
      }
      expect_same(complete(fp8, {&requests[3], 1}, {.max_model_len = 96, .max_num_seqs = 1}), {&expected[3], 1}, which);
      expect_same(
          complete(fp8, requests,
                   {.max_model_len = 96, .max_num_seqs = 17, .max_batch_tokens = 96, .num_speculative_tokens = 4}),
          expected, which + " with proposed tokens");
    }
  }
}

// The bytes of an FP8 block row by row.
std::vector<std::byte> downloaded_rows(const TensorStore& weights, const WeightSpec& spec) {
  std::vector<std::byte> bytes = weights.download(spec.name);
  if (!fp8_block_in_fragments(spec, weights.device().kind())) return bytes;
  const std::span fragments(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const std::vector<std::uint8_t> rows = rows_of_fragments(fragments, spec.shape[1]);
  std::memcpy(bytes.data(), rows.data(), rows.size());
  return bytes;
}

TEST(Fp8, BlocksKeepTheBytesAndScalesOfTheFolder) {
  const TemporaryDirectory folder;
  const Fp8Folders folders = write_fp8_folders(folder.path(), "llama", false);
  const Fp8Loaded loaded = load(folders.fp8, true);
  const ModelDirectory directory(folders.fp8);
  std::size_t parts = 0;
  for (const WeightSpec& spec : loaded.model->weights()) {
    if (!is_fp8_block(spec)) continue;
    const std::vector<std::byte> bytes = downloaded_rows(loaded.weights, spec);
    const std::vector<std::byte> scales = loaded.weights.download(fp8_scale_name(spec.name));
    const std::int64_t rows = fp8_scale_rows(spec);
    const auto across = static_cast<std::size_t>(scale_blocks(spec.shape[1]));
    for (const WeightPart& part : spec.parts) {
      const StoredTensor& tensor = directory.weights().at(part.name);
      EXPECT_TRUE(std::ranges::equal(
          std::span(bytes).subspan(static_cast<std::size_t>(part.row * spec.shape[1]), tensor.bytes.size()),
          tensor.bytes))
          << part.name;
      const StoredTensor& stored = directory.weights().at(part.name + "_scale_inv");
      EXPECT_TRUE(std::ranges::equal(
          std::span(scales).subspan(static_cast<std::size_t>(part.row / rows) * across * 4, across * 4),
          stored.bytes.first(across * 4)))
          << part.name;
      ++parts;
    }
  }
  EXPECT_EQ(parts, linear_tensors(*family_registry().create(directory.config())).size());
}

// Weights in bf16 are quantized to what the folder has that was quantized before, and reloading gives the same.
TEST(Fp8, QuantizesWhileLoading) {
  const TemporaryDirectory folder;
  for (const std::string_view name : {"llama", "gpt2"}) {
    const Fp8Folders folders = write_fp8_folders(folder.path() / name, name, true);
    const Fp8Loaded stored = load(folders.fp8, true);
    const Fp8Loaded quantized = load(folders.source, true);
    for (const NamedType& tensor : stored.weights.tensors()) {
      EXPECT_EQ(quantized.weights.download(tensor.name), stored.weights.download(tensor.name))
          << name << ": " << tensor.name;
    }
    Fp8Loaded other = load(folders.source, true);
    other.weights.fill_zero();
    bool begun = false;
    reload_weights(*other.model, ModelDirectory(folders.fp8), other.weights, begun);
    for (const NamedType& tensor : stored.weights.tensors()) {
      EXPECT_EQ(other.weights.download(tensor.name), stored.weights.download(tensor.name)) << name;
    }
  }
}

// For training, FP8 weights are converted, with a line; what is saved has no quantization_config.
TEST(Fp8, IsConvertedForTraining) {
  const TemporaryDirectory folder;
  const Fp8Folders folders = write_fp8_folders(folder.path(), "llama", false);
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    testing::internal::CaptureStderr();
    const Fp8Loaded converted = load(folders.fp8, false, dtype);
    const std::string line = testing::internal::GetCapturedStderr();
    EXPECT_THAT(line, testing::HasSubstr(dtype == DType::kBf16 ? "FP8 weights are converted to bfloat16"
                                                               : "FP8 weights are converted to float32"));
    const Fp8Loaded bf16 = load(folders.bf16, false, dtype);
    for (const NamedType& tensor : bf16.weights.tensors()) {
      EXPECT_EQ(converted.weights.download(tensor.name), bf16.weights.download(tensor.name)) << tensor.name;
    }
    save_model(folder.path() / "saved", *converted.model, converted.weights, nullptr);
    EXPECT_FALSE(ModelDirectory(folder.path() / "saved").config().contains("quantization_config"));
  }
  EXPECT_EQ(checkpoint_dtype(ModelDirectory(folders.fp8)), DType::kBf16);
}

// Loads a folder whose tensors and configuration were changed. Returns the error.
std::string fp8_error(const fs::path& from, const fs::path& to, bool fp8,
                      const std::function<void(std::vector<HeldTensor>&, Json&)>& change) {
  const ModelDirectory directory(from);
  std::vector<HeldTensor> tensors;
  for (const std::string& name : directory.weights().names()) {
    const StoredTensor& tensor = directory.weights().at(name);
    tensors.push_back(
        {name, dtype_of(tensor.type).value_or(DType::kU8), tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}});
  }
  Json config = directory.config();
  change(tensors, config);
  write_tensors(to, config, tensors);
  try {
    (void)load(to, fp8);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Fp8, BadFoldersAreErrorsOfOneLine) {
  using testing::HasSubstr;
  const TemporaryDirectory folder;
  const Fp8Folders folders = write_fp8_folders(folder.path(), "llama", true);
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const auto find = [](std::vector<HeldTensor>& tensors, const std::string& wanted) -> HeldTensor& {
    return *std::ranges::find(tensors, wanted, &HeldTensor::name);
  };
  for (const bool fp8 : {true, false}) {
    const auto error = [&](const std::function<void(std::vector<HeldTensor>&, Json&)>& change) {
      const std::string text = fp8_error(folders.fp8, folder.path() / "bad", fp8, change);
      EXPECT_EQ(std::ranges::count(text, '\n'), 0) << text;
      return text;
    };
    EXPECT_EQ(error([](auto&, auto&) {}), "none");
    EXPECT_THAT(
        error([&](auto& tensors, auto&) {
          std::erase_if(tensors, [&](const HeldTensor& each) { return each.name == name + "_scale_inv"; });
        }),
        HasSubstr(
            "down_proj.weight' is F8_E4M3, but there is no tensor 'model.layers.1.mlp.down_proj.weight_scale_inv'"));
    EXPECT_THAT(error([&](auto& tensors, auto&) {
                  HeldTensor& scales = find(tensors, name + "_scale_inv");
                  scales.shape.push_back(1);
                }),
                HasSubstr("blocks of 128 x 128"));
    EXPECT_THAT(error([&](auto& tensors, auto&) {
                  HeldTensor& scales = find(tensors, name + "_scale_inv");
                  scales.dtype = DType::kI32;
                }),
                HasSubstr("is I32; hone reads scales of F32 or BF16"));
    for (const float bad :
         {-1.0F, 1e30F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e-38F}) {
      EXPECT_THAT(error([&](auto& tensors, auto&) {
                    HeldTensor& scales = find(tensors, name + "_scale_inv");
                    std::memcpy(scales.bytes.data(), &bad, sizeof bad);
                  }),
                  HasSubstr("has a scale of"));
    }
    EXPECT_THAT(error([&](auto& tensors, auto&) { find(tensors, name).bytes[5] = std::byte{0x7F}; }),
                HasSubstr("has a byte that is no number"));
    EXPECT_THAT(error([&](auto& tensors, auto&) {
                  HeldTensor& matrix = find(tensors, name);
                  matrix.dtype = DType::kBf16;
                  matrix.bytes.resize(2 * matrix.bytes.size());
                }),
                HasSubstr("_scale_inv scales model.layers.1.mlp.down_proj.weight, which is BF16 instead of F8_E4M3"));
    EXPECT_THAT(
        error([&](auto& tensors, auto&) {
          tensors.push_back({"model.layers.1.mlp.other.weight_scale_inv", DType::kF32, {1}, std::vector<std::byte>(4)});
        }),
        HasSubstr("other.weight_scale_inv is not part of this llama model"));
    EXPECT_THAT(error([](auto&, Json& config) { config["quantization_config"]["quant_method"] = "gptq"; }),
                HasSubstr("quantization_config: quant_method is \"gptq\", but hone reads \"fp8\""));
    EXPECT_THAT(error([](auto&, Json& config) { config["quantization_config"]["weight_block_size"] = {64, 128}; }),
                HasSubstr("weight_block_size is [64,128], but hone reads [128,128]"));
    EXPECT_THAT(error([](auto&, Json& config) { config["quantization_config"]["activation_scheme"] = "static"; }),
                HasSubstr("activation_scheme is \"static\""));
    EXPECT_THAT(error([](auto&, Json& config) { config["quantization_config"] = 8; }),
                HasSubstr("quantization_config"));
  }
}

TEST(Fp8, ValuesThatCannotBeQuantizedAreErrors) {
  const TemporaryDirectory folder;
  const Fp8Folders folders = write_fp8_folders(folder.path(), "llama", true);
  const std::string text = fp8_error(folders.bf16, folder.path() / "bad", true, [](auto& tensors, auto&) {
    const BFloat16 bad(std::numeric_limits<float>::infinity());
    HeldTensor& matrix = *std::ranges::find(tensors, "model.layers.1.mlp.down_proj.weight", &HeldTensor::name);
    std::memcpy(matrix.bytes.data(), &bad, sizeof bad);
  });
  EXPECT_THAT(text, testing::HasSubstr("model.layers.1.mlp.down_proj.weight: has a value that is not finite"));
}

// Slots for adapters inside of FP8 weights: the tokens are those of the same slots on bf16 weights.
TEST(Fp8, TakesAdaptersBySlot) {
  const TemporaryDirectory folder;
  const Fp8Folders folders = write_fp8_folders(folder.path(), "llama", false);
  const auto with_slots = [&](const fs::path& path, bool fp8) {
    const ModelDirectory directory(path);
    auto slots = std::make_unique<AdapterSlots>(family_registry().create(directory.config()), 2, 4);
    std::unique_ptr<Model> model = std::move(slots);
    if (fp8) model = std::make_unique<Fp8Model>(std::move(model));
    TensorStore weights = load_weights(*model, directory, DType::kBf16, test_device());
    for (const NamedType& tensor : weights.tensors()) {
      if (!tensor.name.ends_with(".slots_A") && !tensor.name.ends_with(".slots_B")) continue;
      const RandomStream random(3, tensor.name);
      std::vector<BFloat16> values(static_cast<std::size_t>(tensor.type.elements()));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = BFloat16(0.1F * random.normal(i));
      weights.upload(tensor.name, std::as_bytes(std::span(values)));
    }
    return Fp8Loaded{std::move(model), std::move(weights)};
  };
  std::vector<Request> requests =
      fp8_requests(9, family_registry().create(ModelDirectory(folders.bf16).config())->shape().vocab_size);
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].adapter = {static_cast<std::int64_t>(i % 3) - 1, static_cast<std::int64_t>(i % 3)};
  const EngineOptions options{.max_model_len = 96, .max_num_seqs = 9, .max_batch_tokens = 64, .adapter_slots = 2};
  expect_same(complete(with_slots(folders.fp8, true), requests, options),
              complete(with_slots(folders.bf16, false), requests, options), "adapters by slot");
}

}  // namespace
}  // namespace hone::test
