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

// A tensor of the checkpoint, and the rows of the block that it fills.
struct WeightPart {
  std::string name;  // as in the checkpoint: "model.layers.0.self_attn.q_proj.weight"
  std::int64_t row = 0;
  std::int64_t rows = 0;
  bool transposed = false;  // a matrix that the checkpoint holds as [columns, rows]
};

// One storage block. Parts lie in it one after the other along the first dimension and fill it.
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

// Throws Defect where a block has no kind.
void check_specs(const std::vector<WeightSpec>& specs);

}  // namespace hone
