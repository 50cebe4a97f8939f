// How large an engine is.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model.h"

namespace hone {

struct EngineOptions {
  std::int64_t max_model_len = 1024;    // tokens of prompt and completion together
  std::int64_t max_num_seqs = 64;       // requests that run at a time
  std::int64_t max_batch_tokens = 512;  // tokens of one step: prompts are computed in chunks of at most this
  std::int64_t block_size = 16;         // tokens a page
  std::int64_t num_blocks = 0;          // pages; 0: enough for max_num_seqs requests of max_model_len
  bool repetition_penalty = false;      // whether requests may have one
};

// Throws Error where an option makes no sense. Fills in num_blocks.
[[nodiscard]] EngineOptions resolved(EngineOptions options);
[[nodiscard]] KvLayout kv_layout(const EngineOptions& options);
// Capacities of the engine's programs: a step runs the smallest that holds it.
[[nodiscard]] std::vector<Capacity> engine_capacities(const EngineOptions& options);

// What is known of the requests that an engine is made for.
struct EngineDemand {
  std::int64_t max_model_len = 0;  // tokens of the longest prompt and its completion
  std::int64_t max_num_seqs = 64;  // requests at a time
  std::int64_t full_length = 0;    // requests of max_model_len that there are pages for; 0: all that run at a time
  double repetition_penalty = 1;   // of any of them; 1: none has one
};
// The options of an engine that serves such requests, resolved. A step has room for a token of each that runs.
[[nodiscard]] EngineOptions engine_options(const EngineDemand& demand);

// Tokens of prompt and answer that an evaluation has room for, where the model knows as many.
inline constexpr std::int64_t kLongestAnswer = 32768;
// max_model_len as a user gives it; 0, which stands for unset: all positions of the model, but at most `most`.
[[nodiscard]] std::int64_t model_len(const ModelShape& shape, std::int64_t given, std::int64_t most);

}  // namespace hone
