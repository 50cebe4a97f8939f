// Rotary position embedding (Su et al., "RoFormer", 2021). In Hugging Face's layout, element i of a head pairs with
// element i + head_dim / 2; in the interleaved layout of DeepSeek, element 2i with element 2i + 1.
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
  // "default", "llama3" (Llama 3.1) or "yarn" (Peng et al., 2023), as transformers computes them.
  std::string scaling = "default";
  double factor = 8.0;                                   // llama3, yarn
  double low_freq_factor = 1.0;                          // llama3
  double high_freq_factor = 4.0;                         // llama3
  std::int64_t original_max_position_embeddings = 8192;  // llama3, yarn
  double beta_fast = 32.0;                               // yarn: rotations over the original context from which on a
                                                         // frequency is kept
  double beta_slow = 1.0;                                // yarn: rotations below which a frequency is divided by factor
  bool truncate = true;                                  // yarn: the two bounds are rounded to whole pairs
  double attention_factor = 1.0;                         // factor of the cosines and sines

  template <class Visitor>
  void fields(Visitor& v) {
    v("head_dim", head_dim);
    v("theta", theta);
    v("scaling", scaling);
    v("factor", factor);
    v("low_freq_factor", low_freq_factor);
    v("high_freq_factor", high_freq_factor);
    v("original_max_position_embeddings", original_max_position_embeddings);
    v("beta_fast", beta_fast);
    v("beta_slow", beta_slow);
    v("truncate", truncate);
    v("attention_factor", attention_factor);
  }
};

struct RopeAttributes {
  std::int64_t heads = 0;  // number of heads that are rotated, the first ones of a row
  std::int64_t head_dim = 0;
  bool inverse = false;      // rotate back
  std::int64_t offset = 0;   // elements at the start of each head that are copied; the other ones are rotated
  bool interleaved = false;  // pairs are elements 2i and 2i + 1 of the rotated part

  template <class Visitor>
  void fields(Visitor& v) {
    v("heads", heads);
    v("head_dim", head_dim);
    v("inverse", inverse);
    v("offset", offset);
    v("interleaved", interleaved);
  }

  [[nodiscard]] std::int64_t rotated_dim() const { return head_dim - offset; }
};

// Angular frequencies [head_dim / 2], in radians for each position, in f32 as transformers computes them.
[[nodiscard]] std::vector<float> rope_inverse_frequencies(const RopeTableAttributes& attributes);

// Returns f32 [rows, head_dim], head_dim / 2 cosines and then the sines, for positions i32 [rows]; both are multiplied
// by attention_factor. Rows past the count are zero. Throws Error if an attribute is out of range.
[[nodiscard]] Tensor rope_table(Tensor positions, const RopeTableAttributes& attributes);

// Returns x [rows, at least heads x head_dim] with its first heads rotated by `table` (from rope_table, of the same
// rows, with head_dim = rotated_dim()) and the rest copied. Computed in f32 (f64 for f64) and rounded once. Rows past
// the count are zero.
[[nodiscard]] Tensor rope(Tensor x, Tensor table, const RopeAttributes& attributes);

}  // namespace hone
