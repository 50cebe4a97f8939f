// Loads a whole model folder: configuration, weights and tokenizer.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "model/quantization.h"
#include "model/weights.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hone {

struct LoadedModel {
  std::filesystem::path path;
  std::unique_ptr<Model> model;
  TensorStore weights;
  Tokenizer tokenizer;
  std::string generation_config;  // a JSON object; {} if the folder has none
};

// Tokens that end a completion: eos_token_id of generation_config (JSON text) or, if it has none, of config.json, and
// the tokenizer's end token. Sorted, without duplicates.
[[nodiscard]] std::vector<TokenId> stop_token_ids(const std::string& generation_config, const Model& model,
                                                  const Tokenizer& tokenizer);

// Functions that load_model() calls once it has the model of config.json, before its weights are loaded.
struct ModelSetup {
  // May put another Model around the one of the folder.
  std::function<std::unique_ptr<Model>(std::unique_ptr<Model>)> wrap = {};
  // Throws Error if the model, Fp8Model included, does not suit what it is loaded for.
  std::function<void(const Model&)> check = {};
};

// Returns an Fp8Model around a model, for kFp8 or kW8a8Fp8. Throws Error if the device cannot multiply in e4m3, or if a
// model whose activations are to be quantized is a rank's part.
[[nodiscard]] std::unique_ptr<Model> quantized_model(std::unique_ptr<Model> model, Quantization quantization,
                                                     Device& device);

// Loads a model. `name` is a folder or a model name (resolve_model()); for an adapter's folder, returns the base model
// with the adapter merged. Without `dtype`, uses checkpoint_dtype(). Throws Error if a file is missing or invalid, or
// if the tokenizer has more ids than the model.
// If `quantization` asks for FP8 weights, the model is an Fp8Model around what ModelSetup::wrap returns, and its other
// weights are bf16. A rank's part of a model has them only if asked for, and not from a folder that is in FP8:
// kAutomatic converts.
[[nodiscard]] LoadedModel load_model(const std::string& name, std::optional<DType> dtype, Device& device,
                                     const ModelSetup& setup = {}, Quantization quantization = Quantization::kNone);
// bf16 if the checkpoint has tensors of F16, BF16 or FP8, otherwise f32.
[[nodiscard]] DType checkpoint_dtype(const ModelDirectory& directory);

// Loads the tokenizer of a model folder. For an adapter's folder without a tokenizer, loads that of the base model.
[[nodiscard]] Tokenizer load_tokenizer(const std::filesystem::path& folder);

// Throws Error if the tokenizer has ids without a row in the model's embedding.
void check_vocabulary(const Model& model, const Tokenizer& tokenizer);

// Returns the chat template in `text` (Jinja source or the path of a Jinja file). If `text` is empty, returns the
// tokenizer's template, or ChatML if it has none.
[[nodiscard]] ChatTemplate chat_template_of(const Tokenizer& tokenizer, const std::string& text = {});

}  // namespace hone
