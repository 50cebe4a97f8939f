// The description of a model's weights: blocks as programs use them, and the checkpoint tensors that fill each block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/weight_kind.h"
#include "program/type.h"

namespace hone {

enum class Initializer : std::uint8_t { kNormal, kZeros, kOnes };

// The meaning of a dimension along which a part can be sharded over devices.
enum class ShardAxis : std::uint8_t {
  kWhole,       // not sharded: every device holds the whole part
  kHeads,       // attention heads: those of queries, or those of keys and values
  kInner,       // channels between the two halves of an MLP: rows of gate and up, columns of down
  kExperts,     // experts of a mixture
  kVocabulary,  // tokens of the vocabulary
};

// A dimension along which a part can be sharded, and the positions where it can be cut.
struct PartAxis {
  ShardAxis axis = ShardAxis::kWhole;
  std::int64_t dimension = 0;  // dimension of the part in the orientation of blocks: 0 rows, 1 columns
  std::int64_t unit = 1;       // smallest shard along the dimension, for example head_dim
  std::int64_t sections = 1;   // equal consecutive sections that are sharded separately: 3 if a part holds q, k and v
};

// The slice of a checkpoint tensor that a part is, if the part is not a whole tensor.
struct PartSource {
  std::string tensor;  // name of the tensor; empty: the part is the whole tensor called WeightPart::name
  // Index along the first dimension of a tensor [matrices, rows, columns]; -1: the tensor is a single matrix.
  std::int64_t matrix = -1;
  std::int64_t row = 0;  // first row of the part in that matrix, in the orientation of blocks
};

// The elements of a checkpoint's part that a rank of a tensor group has: those of its rows and columns from `offset`
// on.
struct PartBox {
  std::vector<std::int64_t> offset;  // first index in each dimension of the part
  std::vector<std::int64_t> whole;   // shape of the part
};

// A checkpoint tensor, or a slice of one, and the rows of the block that it fills.
struct WeightPart {
  std::string name;  // name in the checkpoint: "model.layers.0.self_attn.q_proj.weight"; for a slice any unique name
  std::int64_t row = 0;             // first row in the block
  std::int64_t rows = 0;            // number of rows in the block
  bool transposed = false;          // a matrix that the checkpoint stores as [columns, rows]
  std::vector<PartAxis> axes = {};  // more than one for an expert's matrix, which can also be sharded by itself
  PartSource source = {};
  PartSource alternative = {};  // where folders hold the part that have no tensor of its name; used for loading only
  std::optional<PartBox> box = {};       // unset: all of the part is here (model/tensor_parallel_model.h)
  std::vector<std::string> copies = {};  // further tensors of a folder that equal this one; written, ignored in loading
};

// The axes of a part along one of its dimensions, or ShardAxis::kWhole if it has none there. The axes along dimension 0
// (rows) are also those of the part's bias.
[[nodiscard]] std::vector<PartAxis> axes_along(const WeightPart& part, std::int64_t dimension);

// A block of weights that programs use as one tensor. Its parts follow each other along the first dimension and fill
// the block; only blocks of adapters may have rows that belong to no part.
struct WeightSpec {
  std::string name;  // "layers.0.attention.qkv"
  std::vector<std::int64_t> shape;
  std::vector<WeightPart> parts;
  WeightKind kind = WeightKind::unset;
  Initializer initializer = Initializer::kNormal;
  std::optional<DType> dtype;  // fixed element type; unset: the dtype that the model is loaded in
  bool trainable = true;
  bool by_e4m3 = false;     // FP8 weights that are multiplied by activations in e4m3 (model/fp8_model.h)
  bool in_folder = true;    // false: belongs to an adapter and is not saved in model folders
  double deviation = 1.0;   // standard deviation of normal initialization, in units of config.json's initializer_range
  double update_speed = 0;  // change by an optimizer step of a kind that has its own update rule (router_bias)

  [[nodiscard]] bool decays() const { return kind.traits().decays; }
  [[nodiscard]] bool is_by_token() const { return kind.traits().by_token; }
  // Type in traced programs, before the precision pass: f32 unless `dtype` is set.
  [[nodiscard]] Type traced_type() const { return {dtype.value_or(DType::kF32), Shape(shape.begin(), shape.end())}; }
};

// Checks specs for consistency. Throws Defect naming the block or part if a block has no kind; if parts share a name or
// rows, or do not fill a block of a model folder; if slices of a tensor overlap, leave gaps or disagree; or if an axis
// does not fit its part. Parts of linear layers, experts, embedding and head must have an axis (ShardAxis::kWhole
// counts).
void check_specs(const std::vector<WeightSpec>& specs);

}  // namespace hone
