// The inputs of a model's forward pass: tokens, positions and the attention over them. DocumentBatch serves training
// and evaluation on packed documents, PagedBatch serves generation with a paged KV cache.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/option_value.h"
#include "model/forward_figures.h"
#include "program/program.h"

namespace hone {

// The heads of an attention layer.
struct HeadShape {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double scale = 1.0;          // factor of the scores
  std::int64_t value_dim = 0;  // elements of a value head; the others, up to head_dim, are zeros. 0: head_dim
};

// Operands of multi-head latent attention (DeepSeek-V2, 2024, section 2.1), which computes the keys and values of all
// heads from one latent row per token. A query or key head consists of its nope part (no rotary positions), followed by
// its rope part.
struct LatentHeads {
  Tensor query;     // [tokens, heads x (nope_dim + rope_dim)], rope parts already rotated
  Tensor latent;    // [tokens, kv_lora_rank], after its norm
  Tensor rope_key;  // [tokens, rope_dim], already rotated, shared by all heads
  Tensor up;        // weight [heads x (nope_dim + value_dim), kv_lora_rank] (kv_b_proj of Hugging Face): for each head
                    // the rows of its key's nope part, then those of its value
  std::int64_t heads = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t value_dim = 0;  // at most nope_dim + rope_dim
  double scale = 1.0;          // factor of the scores
};

// The batch that Model::forward() traces over.
class Batch {
 public:
  virtual ~Batch() = default;

  Tensor tokens;     // i32 [tokens]
  Tensor positions;  // i32 [tokens], from 0 in each document
  // Enables dropout; if false, drop() returns x unchanged.
  bool training = false;
  // True if the program computes a loss. Only then does a model compute its additional losses and statistics.
  bool learns = false;

  // Applies dropout with the given probability. A program with dropout has the input kDropoutInput (ops/dropout); each
  // call gets its own site number, so its mask is independent of the others.
  [[nodiscard]] Tensor drop(Tensor x, double probability);

  // Token to predict at each position, i32 [tokens]; -1: none. In a program that computes a loss only.
  [[nodiscard]] Tensor targets() const;
  // Adds an output besides the hidden states. Throws Defect unless `learns` is set and the name is new.
  void add_loss(AddedLoss loss);
  void add_statistic(ModelStatistic statistic);
  [[nodiscard]] const std::vector<AddedLoss>& losses() const { return losses_; }
  [[nodiscard]] const std::vector<ModelStatistic>& statistics() const { return statistics_; }

  // Causal attention: qkv [tokens, (heads + 2 kv_heads) head_dim] -> [tokens, heads head_dim]. Layers count from 0.
  virtual Tensor attend(std::int64_t layer, Tensor qkv, const HeadShape& shape) = 0;
  // Multi-head latent attention: -> [tokens, heads x value_dim]. The default implementation expands the latent rows to
  // keys and values of all heads and attends to them as ordinary packed heads, with values zero-padded to head_dim =
  // nope_dim + rope_dim. A KV cache then holds heads x head_dim numbers per token for keys and as many for values.
  // Throws Error if value_dim exceeds head_dim.
  virtual Tensor attend(std::int64_t layer, const LatentHeads& heads);

 private:
  void expect_new(std::string_view name) const;

  std::int64_t sites_ = 0;  // dropout sites so far
  std::vector<AddedLoss> losses_;
  std::vector<ModelStatistic> statistics_;
};

// Name of the input of programs whose model has dropout.
inline constexpr const char* kDropoutInput = "dropout";

// The largest batch that a program can run.
struct Capacity {
  std::int64_t tokens = 0;
  std::int64_t sequences = 0;  // documents or requests
  bool operator==(const Capacity&) const = default;
};

// Packed documents, one after the other; attention does not cross their boundaries. Inputs: "tokens" i32 [tokens],
// "positions" i32 [tokens], "cu_seqlens" i32 [sequences + 1] (start of each document; entries past the last document
// repeat its end).
class DocumentBatch final : public Batch {
 public:
  DocumentBatch(Program& program, const Capacity& capacity);
  using Batch::attend;
  Tensor attend(std::int64_t layer, Tensor qkv, const HeadShape& shape) override;

 private:
  Tensor cu_seqlens_;
};

// The type of the keys and values in a paged KV cache.
enum class KvCacheDtype : std::uint8_t {
  kAuto,  // that of the model
  kFp8,   // float8_e4m3fn with a scale for each token and key head (core/float8_head.h)
};
template <>
inline constexpr EnumTable kEnumTable<KvCacheDtype>{.names = "auto|fp8"};

// The form of attention to the latent rows of a KV cache.
enum class LatentForm : std::uint8_t {
  kExpanded,  // keys and values of all heads are computed from them in each step, with the bits of training
  kAbsorbed,  // queries are multiplied by the up-projection and attend to the rows themselves (ops/latent_attention)
};
template <>
inline constexpr EnumTable kEnumTable<LatentForm>{.names = "expanded|absorbed"};

// The layout of a paged KV cache. Each layer has two states [num_blocks, block_size, kv_heads x head_dim] and with FP8
// two more for their scales, u8 [num_blocks, kv_heads x block_size]; or with `latent`, for models with latent attention
// only, one of [num_blocks, block_size, kv_lora_rank + rope_dim].
struct KvLayout {
  std::int64_t num_blocks = 0;
  std::int64_t block_size = 0;  // tokens per block
  std::int64_t max_blocks = 0;  // blocks that a request may have: the width of the block table
  bool latent = false;          // latent rows (ops/latent_cache)
  KvCacheDtype dtype = KvCacheDtype::kAuto;
  LatentForm form = LatentForm::kExpanded;  // of attention to latent rows
  // True if each step expands latent rows to keys and values.
  [[nodiscard]] bool expands() const { return latent && form == LatentForm::kExpanded; }
  // Names of the states with a layer's keys, values, their scales, and latent rows.
  [[nodiscard]] static std::string key_name(std::int64_t layer);
  [[nodiscard]] static std::string value_name(std::int64_t layer);
  [[nodiscard]] static std::string key_scale_name(std::int64_t layer);
  [[nodiscard]] static std::string value_scale_name(std::int64_t layer);
  [[nodiscard]] static std::string latent_name(std::int64_t layer);
};

// Chunks of requests that append their keys and values to the KV cache, then attend to everything cached for their
// request. Inputs: those of DocumentBatch for the new tokens; "slots" i32 [tokens] (block x block_size + offset),
// "block_table" i32 [sequences, max_blocks], "starts" i32 [sequences] (position of each request's first new token).
// With a layout that expands latent rows also "pages" i32 [num_blocks], counted by page_count(): the distinct blocks of
// the requests; the block table then holds indices of `pages`.
class PagedBatch final : public Batch {
 public:
  PagedBatch(Program& program, const Capacity& capacity, const KvLayout& layout, DType dtype);
  using Batch::attend;
  Tensor attend(std::int64_t layer, Tensor qkv, const HeadShape& shape) override;
  // With a layout that expands latent rows the keys and values have the bits of the default implementation. Absorbed
  // attention differs from it by rounding.
  Tensor attend(std::int64_t layer, const LatentHeads& heads) override;

  // The count of the input "pages".
  [[nodiscard]] static Count page_count() { return Count("pages"); }

 private:
  // Attention to the latent rows of `cache`.
  [[nodiscard]] Tensor attend_absorbed(const LatentHeads& heads, Tensor cache) const;

  KvLayout layout_;
  DType dtype_;  // element type of the KV cache, unless it is in FP8
  Tensor cu_seqlens_, slots_, block_table_, starts_, pages_;
};

}  // namespace hone
