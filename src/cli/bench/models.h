// Shapes of well-known models, for benchmarks and plans that need a model's sizes and no weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// Returns the text of a config.json with the sizes that the model's authors publish, for example for "qwen2.5-7b". The
// names "small" to "13b" are the models of gpt_table(). Throws Error, listing the known names.
[[nodiscard]] std::string bench_model_config(std::string_view name);
// Names that bench_model_config() knows.
[[nodiscard]] std::vector<std::string> bench_model_names();

// A row of the GPT table, a series of GPT-2 models that bench/gpt_peer.py trains in PyTorch with the same sizes:
// vocabulary of 50,257, learned positions, GELU, tied embeddings.
struct GptTableRow {
  std::string_view model;
  std::int64_t batch_size = 0;  // sequences per micro-batch
  std::int64_t seq_len = 0;     // tokens per sequence
  bool large = false;           // measured with --large_models instead of --full
};
[[nodiscard]] std::span<const GptTableRow> gpt_table();

}  // namespace hone
