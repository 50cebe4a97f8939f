// Rotary position embedding (Su et al., "RoFormer", 2021) in Hugging Face's layout: element i of a head pairs with
// element i + head_dim / 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct RopeIn {
  enum : std::size_t { x, table };
};

struct RopeTableAttributes {
  std::int64_t head_dim = 0;
  double theta = 10000.0;
  std::string scaling = "default";  // or "llama3" (Llama 3.1, as transformers computes it), which uses the fields below
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
  std::int64_t heads = 0;  // number of heads that are rotated, the first ones of a row
  std::int64_t head_dim = 0;
  bool inverse = false;  // rotate back

  template <class Visitor>
  void fields(Visitor& v) {
    v("heads", heads);
    v("head_dim", head_dim);
    v("inverse", inverse);
  }
};

// Angular frequencies [head_dim / 2], in radians for each position, in f32 as transformers computes them.
[[nodiscard]] std::vector<float> rope_inverse_frequencies(const RopeTableAttributes& attributes);

// Returns f32 [rows, head_dim], head_dim / 2 cosines and then the sines, for positions i32 [rows]. Rows past the count
// are zero. Throws Error if an attribute is out of range.
[[nodiscard]] Tensor rope_table(Tensor positions, const RopeTableAttributes& attributes);

// Returns x [rows, at least heads x head_dim] with its first heads rotated by `table` (from rope_table, of the same
// rows) and the rest copied. Computed in f32 (f64 for f64) and rounded once. Rows past the count are zero.
[[nodiscard]] Tensor rope(Tensor x, Tensor table, const RopeAttributes& attributes);

}  // namespace hone
