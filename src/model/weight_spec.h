// What a family says of its weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/type.h"

namespace hone {

enum class Initializer : std::uint8_t { normal, zeros, ones };

// What a block of weights is to its model. Adapters, Muon, weight decay, tied heads, vocabularies that grow and plans
// decide by it, never by a name or a shape.
enum class WeightKind : std::uint8_t {
  unset,      // a family must say: check_specs() refuses it
  linear,     // matrices of linear layers
  expert,     // the same of the experts of a mixture
  router,     // scores a mixture's experts
  embedding,  // rows by token; the head of a tied model, too
  head,       // logits by token
  norm,
  bias,
  table,  // all else: learned positions, parts of adapters
};

// What a block is held in.
enum class WeightPrecision : std::uint8_t {
  model,  // the type that the model is loaded in
  f32,    // whatever that is
};

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
  WeightPrecision precision = WeightPrecision::model;
  bool trainable = true;
  bool in_folder = true;   // false: an adapter's, which is in no model folder
  double deviation = 1.0;  // of normal numbers, in units of config.json's initializer_range

  [[nodiscard]] bool decays() const { return kind != WeightKind::norm && kind != WeightKind::bias; }
  [[nodiscard]] bool is_by_token() const { return kind == WeightKind::embedding || kind == WeightKind::head; }
};

// Throws Defect where a block has no kind.
void check_specs(const std::vector<WeightSpec>& specs);

}  // namespace hone
