#include "model/loaded_model.h"

#include <algorithm>

#include "backend/gpu.h"
#include "checkpoint/fp8_tensor.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "model/fp8_model.h"
#include "model/registry.h"

namespace hone {
namespace {

void collect_ids(const Json& config, std::vector<TokenId>& ids) {
  const auto found = config.find("eos_token_id");
  if (found == config.end()) return;
  const auto add = [&](const Json& value) {
    if (value.is_number_integer()) ids.push_back(value.get<TokenId>());
  };
  if (found->is_array()) {
    for (const Json& value : *found) add(value);
  } else {
    add(*found);
  }
}

}  // namespace

std::vector<TokenId> stop_token_ids(const std::string& generation_config, const Model& model,
                                    const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  collect_ids(parse_json(generation_config, "generation_config.json"), ids);
  if (ids.empty()) collect_ids(model.config(), ids);
  if (const auto eos = tokenizer.eos_token_id()) ids.push_back(*eos);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

DType checkpoint_dtype(const ModelDirectory& directory) {
  for (const SafetensorsFile& file : directory.weights().files()) {
    for (const StoredTensor& tensor : file.tensors()) {
      const StoredType type = tensor.type;
      if (type == StoredType::kBf16 || type == StoredType::kF16 || type == StoredType::kF8E4m3) return DType::kBf16;
    }
  }
  return DType::kF32;
}

void check_vocabulary(const Model& model, const Tokenizer& tokenizer) {
  if (tokenizer.vocab_size() <= model.shape().vocab_size) return;
  throw Error("tokenizer", text_of("has ", tokenizer.vocab_size(), " ids, the model embeds ", model.shape().vocab_size),
              "use the tokenizer that belongs to the model");
}

Tokenizer load_tokenizer(const std::filesystem::path& folder) {
  return Tokenizer::load(is_adapter_folder(folder) ? ModelDirectory(folder).tokenizer_path() : folder);
}

namespace {

// Says how much memory FP8 weights save.
void log_fp8(const Model& model, const TensorStore& weights) {
  std::size_t in_fp8 = 0;
  std::size_t in_bf16 = 0;
  for (const WeightSpec& spec : model.weights()) {
    if (!is_fp8_block(spec)) continue;
    const auto elements = static_cast<std::size_t>(weights.type(spec.name).elements());
    in_fp8 += elements + weights.type(fp8_scale_name(spec.name)).bytes();
    in_bf16 += elements * sizeof(BFloat16);
  }
  if (in_fp8 == 0) return;
  log_info(text_of("weights take ", format_bytes(weights.bytes()), ", of which linear layers in FP8 ",
                   format_bytes(in_fp8), " (", format_bytes(in_bf16), " in bf16)"));
}

}  // namespace

std::unique_ptr<Model> quantized_model(std::unique_ptr<Model> model, Quantization quantization, Device& device) {
  if (quantization == Quantization::kFp8) return std::make_unique<Fp8Model>(std::move(model));
  HONE_ASSERT(quantization == Quantization::kW8a8Fp8, "a model without FP8 weights");
  if (&model->whole() != model.get()) {
    throw Error("quantization", "is w8a8_fp8, which does not work with a model that is divided over processes",
                "--quantization fp8 or none, or leave out tensor_parallel_size");
  }
  if (device.kind() == DeviceKind::kCuda) {
    if (const std::optional<std::string> obstacle = gpu_fp8_obstacle()) {
      throw Error("quantization", text_of("is w8a8_fp8, but ", *obstacle), "--quantization fp8 or none");
    }
  }
  return std::make_unique<Fp8Model>(std::move(model), Fp8Layers::kProducts);
}

LoadedModel load_model(const std::string& name, std::optional<DType> dtype, Device& device, const ModelSetup& setup,
                       Quantization quantization) {
  const std::filesystem::path path = resolve_model(name);
  const ModelDirectory directory(path);
  std::unique_ptr<Model> model = family_registry().create(directory.config());
  if (setup.wrap) model = setup.wrap(std::move(model));
  const bool is_part = &model->whole() != model.get();
  const bool stored = has_fp8(directory.weights());
  if (is_part && stored && quantization == Quantization::kFp8) {
    throw Error("quantization", "is fp8, but weights that are stored in FP8 are not divided over processes",
                "--quantization none, or a folder in bfloat16");
  }
  if (is_part && quantization == Quantization::kAutomatic) quantization = Quantization::kNone;
  if (quantization == Quantization::kAutomatic) quantization = stored ? Quantization::kFp8 : Quantization::kNone;
  if (quantization != Quantization::kNone) {
    model = quantized_model(std::move(model), quantization, device);
    dtype = DType::kBf16;
  }
  if (setup.check) setup.check(*model);
  Tokenizer tokenizer = Tokenizer::load(directory.tokenizer_path());
  check_vocabulary(*model, tokenizer);
  TensorStore weights = load_weights(*model, directory, dtype.value_or(checkpoint_dtype(directory)), device);
  log_fp8(*model, weights);
  std::string generation_config =
      directory.generation_config() != nullptr ? directory.generation_config()->dump() : "{}";
  return {path, std::move(model), std::move(weights), std::move(tokenizer), std::move(generation_config)};
}

ChatTemplate chat_template_of(const Tokenizer& tokenizer, const std::string& text) {
  if (text.empty()) {
    return ChatTemplate(tokenizer.chat_template().empty() ? chatml_template()
                                                          : std::string_view(tokenizer.chat_template()));
  }
  const bool is_path = text.find('{') == std::string::npos;
  return ChatTemplate(is_path ? read_file(text) : text);
}

}  // namespace hone
