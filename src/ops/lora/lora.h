// Low-rank adapters (Hu et al., "LoRA", 2021) and their magnitudes (Liu et al., "DoRA", 2024), over a block of weights
// some of whose parts have one: y = x W^T + bias + h up^T, with h = x A^T and up the parts' B, each in its columns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct LoraCollectIn {
  enum : std::size_t { dup, db };
};
struct LoraLinearIn {
  enum : std::size_t { x, weight, bias, h, up };
};
struct LoraDoraNormIn {
  enum : std::size_t { weight, delta };
};
struct LoraDoraProductIn {
  enum : std::size_t { dy, z, norm };
};
struct LoraDoraScaleIn {
  enum : std::size_t { z, magnitude, norm, bias };
};
struct LoraBiasIn {
  enum : std::size_t { trained, frozen };
};
struct LoraBiasCollectIn {
  enum : std::size_t { dbias, sum };
};
struct LoraJoinIn {
  enum : std::size_t { a, b };
};

// Rows of the block that have an adapter, part by part.
struct LoraParts {
  static constexpr int kMost = 8;
  int count = 0;
  std::array<std::int64_t, kMost> first{};
  std::array<std::int64_t, kMost> rows{};

  // The part of a row, or -1.
  [[nodiscard]] constexpr int of(std::int64_t row) const {
    for (int part = 0; part < count; ++part) {
      if (row >= first.data()[part] && row < first.data()[part] + rows.data()[part]) return part;
    }
    return -1;
  }
  void add(std::int64_t first_row, std::int64_t row_count);
};
// "0+64,96+32": first row and number of rows.
[[nodiscard]] std::string to_text(const LoraParts& parts);
[[nodiscard]] LoraParts lora_parts_from_text(std::string_view text);  // throws Error

struct LoraAttributes {
  std::string parts;
  double scale = 1;  // lora_spread alone

  template <class Visitor>
  void fields(Visitor& v) {
    v("parts", parts);
    v("scale", scale);
  }
};

// b [n, r] -> up [n, parts r]: row i of part p has scale x b[i] in the columns [p r, (p + 1) r); all else is 0.
[[nodiscard]] Tensor lora_spread(Tensor b, const LoraParts& parts, double scale);

// x [rows, k], weight [n, k], bias [n] or none, h [rows, q], up [n, q] -> y [rows, n]. x W^T + bias is rounded as
// linear rounds it, and again with the rest added. The weight gets no gradient: it is frozen.
[[nodiscard]] Tensor linear_adapted(Tensor x, Tensor weight, Tensor bias, Tensor h, Tensor up);

// weight and delta [n, k] -> the L2 norms of the rows of weight + delta, f32 (f64) [n], at least 1e-12. No gradient:
// DoRA holds them constant.
[[nodiscard]] Tensor dora_norm(Tensor weight, Tensor delta);

// z [rows, n], magnitude [n], norm [n], bias [n] or none -> z magnitude / norm + bias; rows of the block without an
// adapter, which are columns here, z + bias.
[[nodiscard]] Tensor dora_scale(Tensor z, Tensor magnitude, Tensor norm, Tensor bias, const LoraParts& parts);

// trained and frozen [n] -> [n]: the trained one where a part has an adapter, else the frozen one, which gets no
// gradient.
[[nodiscard]] Tensor lora_bias(Tensor trained, Tensor frozen, const LoraParts& parts);

struct LoraColumns {
  std::int64_t first = 0;
  std::int64_t count = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v("first", first);
    v("count", count);
  }
};

// a [rows, m], b [rows, n] of one type -> [rows, m + n]: beside each other. What a head with an adapter is made of: its
// input [x | h] and its weight [W | up] go through the very operations that a head without one does.
[[nodiscard]] Tensor join_columns(Tensor a, Tensor b);

}  // namespace hone
