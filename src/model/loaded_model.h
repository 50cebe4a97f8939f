// A model folder in memory: configuration, weights, tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "model/weights.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hone {

struct LoadedModel {
  std::filesystem::path path;
  std::unique_ptr<Model> model;
  TensorStore weights;
  Tokenizer tokenizer;
  std::string generation_config;  // a JSON object; {} where the folder has none
};

// Tokens that end a completion: eos_token_id of generation_config (JSON), else of config.json, and the tokenizer's.
[[nodiscard]] std::vector<TokenId> stop_token_ids(const std::string& generation_config, const Model& model,
                                                  const Tokenizer& tokenizer);

// `name`: a folder, or a name in Hugging Face's cache. An adapter's folder is its base with the adapter merged. dtype:
// none takes the checkpoint's (bf16 for F16 and BF16, else f32). Throws Error, also where the tokenizer has more ids
// than the model.
[[nodiscard]] LoadedModel load_model(const std::string& name, std::optional<DType> dtype, Device& device);
[[nodiscard]] DType checkpoint_dtype(const ModelDirectory& directory);

// Of a model's folder; of an adapter's, the base's where it has none of its own.
[[nodiscard]] Tokenizer load_tokenizer(const std::filesystem::path& folder);

// Throws Error where the tokenizer has ids that the model has no embedding for.
void check_vocabulary(const Model& model, const Tokenizer& tokenizer);

// The template of `text` (Jinja, or the path of a file of it), else the tokenizer's, else ChatML.
[[nodiscard]] ChatTemplate chat_template_of(const Tokenizer& tokenizer, const std::string& text = {});

}  // namespace hone
