// Rotary position embedding (Su et al., "RoFormer", 2021), in the order of Hugging Face: element i of a head pairs with
// element i + head_dim / 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct RopeIn {
  enum : std::size_t { x, table };
};

struct RopeTableAttributes {
  std::int64_t head_dim = 0;
  double theta = 10000.0;
  std::string scaling = "default";  // or "llama3", which reads the rest (Llama 3.1, as transformers computes it)
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;

  template <class Visitor>
  void fields(Visitor& v) {
    v("head_dim", head_dim);
    v("theta", theta);
    v("scaling", scaling);
    v("factor", factor);
    v("low_freq_factor", low_freq_factor);
    v("high_freq_factor", high_freq_factor);
    v("original_max_position_embeddings", original_max_position_embeddings);
  }
};

struct RopeAttributes {
  std::int64_t heads = 0;  // how many heads of a row are rotated, from its start
  std::int64_t head_dim = 0;
  bool inverse = false;  // rotate back

  template <class Visitor>
  void fields(Visitor& v) {
    v("heads", heads);
    v("head_dim", head_dim);
    v("inverse", inverse);
  }
};

// Radians a position, head_dim / 2 of them, in f32 as transformers computes them.
[[nodiscard]] std::vector<float> rope_inverse_frequencies(const RopeTableAttributes& attributes);

// positions i32 [rows] -> f32 [rows, head_dim]: head_dim / 2 cosines, then the sines. Rows past the count are zero.
[[nodiscard]] Tensor rope_table(Tensor positions, const RopeTableAttributes& attributes);

// x [rows, any number of heads x head_dim], table of the same rows -> x with its first heads rotated, the rest as it
// was. Computed in f32 (f64) and rounded once; rows past the count are zero.
[[nodiscard]] Tensor rope(Tensor x, Tensor table, const RopeAttributes& attributes);

}  // namespace hone
