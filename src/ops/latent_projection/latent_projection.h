// Projections of absorbed multi-head latent attention (DeepSeek-V2, 2024, section 2.1). A key is W_UK latent and a
// value W_UV latent, so that queries can be multiplied by W_UK once instead of all latent rows:
//
//   q (W_UK latent) = (q W_UK) latent             latent_projection_queries, before latent_attention
//   sum of w_t (W_UV latent_t) = W_UV (sum of w_t latent_t)    latent_projection_values, after it
//
// This is the arithmetic of linear() and attention() over the expanded heads in another order; results differ by
// rounding. A row of a result depends on no other row.
#pragma once

#include <cstddef>

#include "ops/latent_heads/latent_heads.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs of both operations; x is `query` or `latents`.
struct LatentProjectionIn {
  enum : std::size_t { x, up };
};

// Returns [rows, heads x (rank + rope_dim)] for query [rows, heads x (nope_dim + rope_dim)] and up [heads x (nope_dim +
// value_dim), rank]: of each head its nope part times the rows of `up` that make its keys, summed over nope_dim in
// ascending order and rounded once, then its rope part, copied. There is no gradient.
[[nodiscard]] Tensor latent_projection_queries(Tensor query, Tensor up, const LatentHeadsAttributes& attributes);

// Returns [rows, heads x value_dim] for latents [rows, heads x rank]: of each head the rows of `up` that make its
// values, times its latents, rounded once. There is no gradient.
[[nodiscard]] Tensor latent_projection_values(Tensor latents, Tensor up, const LatentHeadsAttributes& attributes);

}  // namespace hone
