// The small models of tests/fixtures/models, and a tokenizer for models that have none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/host_batch.h"
#include "model/registry.h"
#include "model/weights.h"
#include "support/device.h"
#include "text/tokenizer.h"
#include "train/optimizer.h"

namespace hone::test {

inline constexpr std::string_view kFixtureModels[] = {"llama",
                                                      "llama_tied",
                                                      "llama3_rope",
                                                      "qwen2",
                                                      "qwen2_tied",
                                                      "qwen3",
                                                      "gpt2",
                                                      "gpt2_exact_gelu",
                                                      "qwen3_moe",
                                                      "qwen3_moe_tied",
                                                      "mixtral",
                                                      "deepseek_v2",
                                                      "deepseek_v2_grouped_tied",
                                                      "deepseek_v3",
                                                      "deepseek_v3_ungrouped_tied"};

struct FixtureModel {
  explicit FixtureModel(std::string_view name, DType dtype = DType::kF32, Device& device = test_device());

  ModelDirectory directory;
  std::unique_ptr<Model> model;
  TensorStore weights;
  SafetensorsFile reference;  // what transformers computed: make_models.py

  // The reference's documents as one batch, every next token a target.
  [[nodiscard]] HostBatch batch() const;
  [[nodiscard]] std::vector<TokenId> ids(std::string_view name) const;
};

// `size` distinct tokens without meaning; no special ones.
[[nodiscard]] Tokenizer letter_tokenizer(std::int64_t size);

// Documents laid end to end, every next token a target.
[[nodiscard]] HostBatch batch_of(std::span<const std::vector<TokenId>> documents);

// Rewrites a checkpoint's optimizer.safetensors as the first format had it: each block of weights in one tensor of the
// block's name, no format number.
void write_as_first_format(const std::filesystem::path& checkpoint, const Model& model);

// Rewrites a checkpoint's optimizer.safetensors as several files of at most max_file_bytes.
void write_state_in_several_files(const std::filesystem::path& checkpoint, std::uint64_t max_file_bytes);

[[nodiscard]] std::vector<float> floats_of(std::span<const std::byte> bytes);
// max|a - b| / max|b|.
[[nodiscard]] double relative_difference(std::span<const float> a, std::span<const float> b);

// Types of the tensors that the update of a model keeps in the store of this name.
[[nodiscard]] std::vector<NamedType> update_store(const Model& model, DType dtype, const OptimizerOptions& options,
                                                  std::string_view name);

inline Capacity capacity_of(const HostBatch& batch) { return {batch.token_count(), batch.document_count()}; }

}  // namespace hone::test
