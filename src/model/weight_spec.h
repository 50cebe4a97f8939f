// What a family says of its weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  Initializer initializer = Initializer::normal;
  bool decays = true;  // weight decay: all but norms and biases
  bool trainable = true;
  bool in_folder = true;   // false: an adapter's, which is in no model folder
  double deviation = 1.0;  // of normal numbers, in units of config.json's initializer_range
};

}  // namespace hone
