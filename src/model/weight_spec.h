// What a family says of its weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/weight_kind.h"
#include "program/type.h"

namespace hone {

enum class Initializer : std::uint8_t { normal, zeros, ones };

// What a dimension of a part counts, where several devices may share the part along it.
enum class ShardAxis : std::uint8_t {
  whole,       // nothing: every device holds all of the part
  heads,       // of attention: those of queries, or those of keys and values
  inner,       // channels between the two halves of an MLP: rows of gate and up, columns of down
  experts,     // of a mixture
  vocabulary,  // tokens
};

// Along which of its dimensions a part may be cut, and where.
struct PartAxis {
  ShardAxis axis = ShardAxis::whole;
  std::int64_t dimension = 0;  // of the part as the block holds it: 0 its rows, 1 its columns
  std::int64_t unit = 1;       // so many of that dimension are never cut: head_dim of a head
  std::int64_t sections = 1;   // equal ones, one behind the other, each cut by itself: 3 where one part is q, k and v
};

// Which slice of a tensor of the checkpoint a part is, where it is not one by itself.
struct PartSource {
  std::string tensor;  // its name; empty: the part is the whole tensor of its own name
  // Index along the first dimension of a tensor [matrices, rows, columns]; -1: the tensor is one matrix.
  std::int64_t matrix = -1;
  std::int64_t row = 0;  // where the part begins, in rows of that matrix as the block holds them
};

// A tensor of the checkpoint, or a slice of one, and the rows of the block that it fills.
struct WeightPart {
  std::string name;  // as in the checkpoint: "model.layers.0.self_attn.q_proj.weight"; of a slice, a name of its own
  std::int64_t row = 0;
  std::int64_t rows = 0;
  bool transposed = false;          // a matrix that the checkpoint holds as [columns, rows]
  std::vector<PartAxis> axes = {};  // several: of an expert's matrix, which may be cut by itself, too
  PartSource source = {};
};

// The axes of a part along one of its dimensions, ShardAxis::whole where it has none there. Along the rows they are
// those of its bias.
[[nodiscard]] std::vector<PartAxis> axes_along(const WeightPart& part, std::int64_t dimension);

// One storage block. Parts lie in it one after the other along the first dimension and fill it; an adapter's may not.
struct WeightSpec {
  std::string name;  // "layers.0.attention.qkv"
  std::vector<std::int64_t> shape;
  std::vector<WeightPart> parts;
  WeightKind kind = WeightKind::unset;
  Initializer initializer = Initializer::normal;
  std::optional<DType> dtype;  // what it is held in, whatever the model is loaded in; unset: the model's
  bool trainable = true;
  bool in_folder = true;   // false: an adapter's, which is in no model folder
  double deviation = 1.0;  // of normal numbers, in units of config.json's initializer_range

  [[nodiscard]] bool decays() const { return kind.traits().decays; }
  [[nodiscard]] bool is_by_token() const { return kind.traits().by_token; }
  // As it is traced, before the precision pass: in f32 unless it is held in a type of its own.
  [[nodiscard]] Type traced_type() const { return {dtype.value_or(DType::f32), Shape(shape.begin(), shape.end())}; }
};

// Throws Defect, naming block or part, where a block has no kind; where parts share a name, or rows of their block, or
// do not fill a block of a model's folder; where slices of one tensor overlap, leave gaps or disagree; where an axis
// does not fit its part, or a part of linear layers, experts, embedding or head has none (ShardAxis::whole is one).
void check_specs(const std::vector<WeightSpec>& specs);

}  // namespace hone
