// Computes embeddings of texts with a causal language model: the hidden states after its last norm, pooled and scaled
// to length 1. A separate program without head runs on a small KV cache, so that long inputs are computed in chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/option_value.h"
#include "engine/block_pool.h"
#include "engine/engine_options.h"
#include "model/model.h"
#include "program/executable.h"
#include "text/tokenizer.h"
#include "workspace/workspace.h"

namespace hone {

class EngineGroup;

enum class Pooling : std::uint8_t {
  kLast,  // the hidden state of the last token
  kMean,  // the mean over all tokens
};
template <>
inline constexpr EnumTable kEnumTable<Pooling>{.names = "last|mean"};

struct EmbedderOptions {
  Pooling pooling = Pooling::kLast;
  std::int64_t max_model_len = 1024;    // tokens of an input
  std::int64_t max_batch_tokens = 512;  // tokens of one step
  std::int64_t block_size = 32;         // tokens per KV-cache block
  bool adapter_slots = false;           // the model is an AdapterSlots model; embeddings use none
};

// An embedding depends on the weights and the tokens of its input only, not on other inputs or the division into steps.
class Embedder {
 public:
  // Weights and model must outlive the object. The arena may be shared with an engine that runs in turns with it.
  // group: as for Engine
  Embedder(const Model& model, const TensorStore& weights, const std::shared_ptr<Arena>& arena,
           const EmbedderOptions& options, EngineGroup* group = nullptr);

  // Runs each program twice without tokens, as Engine::prepare() does. No input may be under way.
  void prepare();
  // Launches a program of a follower's embedder, as Engine::follow() does.
  void follow(std::size_t program, std::string_view changes);
  // Drops the inputs under way and begins with these, each of at least one token and at most max_model_len.
  void start(std::vector<std::vector<TokenId>> inputs);
  // Computes at most max_batch_tokens tokens. Returns false if all inputs have been computed.
  bool step();
  // The embeddings [inputs][hidden_size] once step() has returned false. Moves them out.
  [[nodiscard]] std::vector<std::vector<float>> take();

  // Runs all steps of these inputs.
  [[nodiscard]] std::vector<std::vector<float>> embed(std::vector<std::vector<TokenId>> inputs);

 private:
  // A part of an input in a step.
  struct Chunk {
    std::size_t input = 0;
    std::int64_t begin = 0;  // token of the input
    std::int64_t count = 0;
    BlockId first_block = 0;
  };
  using BlockTable = std::vector<std::int32_t>;

  void make(const Model& model, const TensorStore& weights, const std::shared_ptr<Arena>& arena);
  // Runs a program, whose inputs are set, on all ranks.
  void run(std::size_t program);
  [[nodiscard]] std::int64_t length(std::size_t input) const { return std::ssize(inputs_[input]); }
  [[nodiscard]] std::int64_t blocks_of(std::size_t input) const;
  // Takes the next chunks, as far as they fit into a step and the KV cache.
  [[nodiscard]] std::vector<Chunk> next_chunks();
  // Sets the inputs of the program and returns the rows of the step to read.
  [[nodiscard]] std::size_t feed(Executable& program, std::span<const Chunk> chunks) const;
  // Adds the rows that a step has given to the inputs' sums, and finishes complete inputs.
  void pool(std::span<const Chunk> chunks, std::span<const float> rows);
  [[nodiscard]] bool is_last(const Chunk& chunk) const { return chunk.begin + chunk.count == length(chunk.input); }

  EmbedderOptions options_;
  EngineGroup* group_;
  std::int64_t hidden_size_;
  Capacity capacity_;
  KvLayout layout_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<Executable*> programs_;     // ascending capacities
  std::vector<std::int64_t> capacities_;  // tokens
  std::vector<std::vector<TokenId>> inputs_;
  std::size_t next_input_ = 0;    // of which tokens are left
  std::int64_t next_token_ = 0;   // of next_input_
  std::int64_t first_block_ = 0;  // of next_input_, if next_token_ is above 0
  std::vector<double> sum_;       // [hidden_size] of the input that is under way
  std::vector<std::vector<float>> embeddings_;
};

}  // namespace hone
