// What a model's forward pass reads besides its weights: tokens, positions, and how its queries find their keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/forward_figures.h"
#include "program/program.h"

namespace hone {

struct HeadShape {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double scale = 1.0;
};

// Multi-head latent attention (DeepSeek-V2, 2024, section 2.1): keys and values of all heads are made from one latent
// row a token. A head of queries or keys is its nope part, then its rope part.
struct LatentHeads {
  Tensor query;     // [tokens, heads x (nope_dim + rope_dim)], the rope parts already rotated
  Tensor latent;    // [tokens, kv_lora_rank], after its norm
  Tensor rope_key;  // [tokens, rope_dim], already rotated, one for all heads
  Tensor up;        // weight [heads x (nope_dim + value_dim), kv_lora_rank] (kv_b_proj of Hugging Face): each head has
                    // the rows of its key's nope part, then those of its value
  std::int64_t heads = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t value_dim = 0;  // at most nope_dim + rope_dim
  double scale = 1.0;          // of the scores
};

class Batch {
 public:
  virtual ~Batch() = default;

  Tensor tokens;     // i32 [tokens]
  Tensor positions;  // i32 [tokens], from 0 in each document
  // Dropout is a matter of training: drop() gives x back unless this is set.
  bool training = false;
  // Whether a loss is computed, so that losses and figures of the model's own are wanted. A model computes them only
  // then.
  bool learns = false;

  // x with this share of its elements dropped. A program with dropouts has the input "dropout" (ops/dropout): each
  // call is a site of its own.
  [[nodiscard]] Tensor drop(Tensor x, double probability);

  // What the model gives beside its hidden states; learns is set. Names are used once.
  void add_loss(AddedLoss loss);
  void add_statistic(ModelStatistic statistic);
  [[nodiscard]] const std::vector<AddedLoss>& losses() const { return losses_; }
  [[nodiscard]] const std::vector<ModelStatistic>& statistics() const { return statistics_; }

  // qkv [tokens, (heads + 2 kv_heads) head_dim] -> [tokens, heads head_dim]. Layers count from 0.
  virtual Tensor attend(std::int64_t layer, Tensor qkv, const HeadShape& shape) = 0;
  // -> [tokens, heads x value_dim]. The default makes keys and values of all heads from the latent rows and attends to
  // them as packed heads, the values padded with zeros to head_dim = nope_dim + rope_dim. A page then holds heads x
  // head_dim numbers a token of keys, and as many of values. Throws Error where value_dim exceeds head_dim.
  virtual Tensor attend(std::int64_t layer, const LatentHeads& heads);

 private:
  void expect_new(std::string_view name) const;

  std::int64_t sites_ = 0;
  std::vector<AddedLoss> losses_;
  std::vector<ModelStatistic> statistics_;
};

// The input of a program whose model has dropouts.
inline constexpr const char* kDropoutInput = "dropout";

// Room for the tokens of one run and for the documents or requests among them.
struct Capacity {
  std::int64_t tokens = 0;
  std::int64_t sequences = 0;
  bool operator==(const Capacity&) const = default;
};

// Documents laid end to end; none sees another. Inputs: "tokens", "positions", "cu_seqlens" [sequences + 1] (entries
// past the last document repeat the end).
class DocumentBatch final : public Batch {
 public:
  DocumentBatch(Program& program, const Capacity& capacity);
  using Batch::attend;
  Tensor attend(std::int64_t layer, Tensor qkv, const HeadShape& shape) override;

 private:
  Tensor cu_seqlens_;
};

// Pages of keys and values.
struct KvLayout {
  std::int64_t num_blocks = 0;
  std::int64_t block_size = 0;  // tokens a page
  std::int64_t max_blocks = 0;  // pages a request may have: the width of a block table
  [[nodiscard]] static std::string key_name(std::int64_t layer);  // of the state that holds a layer's keys
  [[nodiscard]] static std::string value_name(std::int64_t layer);
};

// Chunks of requests that append to pages, then attend to all that their pages hold. Inputs: those of DocumentBatch for
// the new tokens, "slots" i32 [tokens] (page x block_size + offset), "block_table" i32 [sequences, max_blocks],
// "starts" i32 [sequences] (the position of each request's first new token).
class PagedBatch final : public Batch {
 public:
  PagedBatch(Program& program, const Capacity& capacity, const KvLayout& layout, DType dtype);
  using Batch::attend;
  Tensor attend(std::int64_t layer, Tensor qkv, const HeadShape& shape) override;

 private:
  KvLayout layout_;
  DType dtype_;  // of the pages
  Tensor cu_seqlens_, slots_, block_table_, starts_;
};

}  // namespace hone
