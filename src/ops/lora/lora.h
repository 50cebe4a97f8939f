// Low-rank adapters (Hu et al., "LoRA", 2021) and DoRA's magnitudes (Liu et al., "DoRA", 2024) for a block of weights
// that holds several parts (such as q, k and v), some of which have an adapter: y = x W^T + bias + h up^T, where h = x
// A^T and up [n, parts x rank] holds each part's B in that part's columns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
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

// The row ranges of a block that have an adapter, one for each part.
struct LoraParts {
  static constexpr int kMost = 8;  // parts
  int count = 0;
  std::array<std::int64_t, kMost> first{};
  std::array<std::int64_t, kMost> rows{};

  // The part that a row belongs to, or -1 if the row has no adapter.
  [[nodiscard]] constexpr int of(std::int64_t row) const {
    for (int part = 0; part < count; ++part) {
      if (row >= first.data()[part] && row < first.data()[part] + rows.data()[part]) return part;
    }
    return -1;
  }
  void add(std::int64_t first_row, std::int64_t row_count);
};
// Text form of the parts: first row and number of rows of each, such as "0+64,96+32".
[[nodiscard]] std::string to_text(const LoraParts& parts);
[[nodiscard]] LoraParts lora_parts_from_text(std::string_view text);  // throws Error if the text is malformed

struct LoraAttributes {
  std::string parts;  // text form of LoraParts
  double scale = 1;   // used by lora_spread and its gradient only

  template <class Visitor>
  void fields(Visitor& v) {
    v("parts", parts);
    v("scale", scale);
  }
};

// Returns up [n, parts x r] for b [n, r]: row i of part p has scale x b[i] in columns [p r, (p + 1) r) and 0 elsewhere.
[[nodiscard]] Tensor lora_spread(Tensor b, const LoraParts& parts, double scale);

// Returns y [rows, n] = x W^T + bias + h up^T for x [rows, k], weight [n, k], bias [n] or none, h [rows, q] and up
// [n, q]. x W^T + bias is rounded as linear rounds it, and the sum with h up^T is rounded again. The weight is frozen
// and gets no gradient.
[[nodiscard]] Tensor linear_adapted(Tensor x, Tensor weight, Tensor bias, Tensor h, Tensor up);

// Returns the L2 norms [n] of the rows of weight + delta, each [n, k], in f32 (f64 for f64), at least 1e-12. They have
// no gradient: DoRA treats them as constants.
[[nodiscard]] Tensor dora_norm(Tensor weight, Tensor delta);

// Returns the same norms for a rank's columns of the weight and of delta, which the ranks of a tensor group have.
// Communicates.
[[nodiscard]] Tensor dora_norm_part(Tensor weight, Tensor delta);

// Returns z magnitude / norm + bias for z [rows, n], magnitude [n], norm [n] and bias [n] or none. Columns that belong
// to no part are z + bias.
[[nodiscard]] Tensor dora_scale(Tensor z, Tensor magnitude, Tensor norm, Tensor bias, const LoraParts& parts);

// Returns [n]: the elements of `trained` [n] that belong to a part, and those of `frozen` [n] elsewhere. The frozen
// bias gets no gradient.
[[nodiscard]] Tensor lora_bias(Tensor trained, Tensor frozen, const LoraParts& parts);

// Columns [first, first + count), for the gradient of join_columns.
struct LoraColumns {
  std::int64_t first = 0;
  std::int64_t count = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v("first", first);
    v("count", count);
  }
};

// Returns [a | b], [rows, m + n], for a [rows, m] and b [rows, n] of one dtype. An output head with an adapter uses it:
// its input [x | h] and its weight [W | up] go through the same operations as those of a head without one.
[[nodiscard]] Tensor join_columns(Tensor a, Tensor b);

}  // namespace hone
