// Shapes of models, to be measured with random weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// config.json as the model's authors publish it, as far as shapes go; small to 13b are the GPTs of the table below.
// Throws Error with the names that there are.
[[nodiscard]] std::string bench_model_config(std::string_view name);
[[nodiscard]] std::vector<std::string> bench_model_names();

// A row of the GPT table: vocabulary 50,257, learned positions, GELU, the embedding as head.
struct GptTableRow {
  std::string_view model;
  std::int64_t batch_size = 0;
  std::int64_t seq_len = 0;
  bool large = false;
};
[[nodiscard]] std::span<const GptTableRow> gpt_table();

}  // namespace hone
