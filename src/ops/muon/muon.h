// Muon (Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024), as torch.optim.Muon computes it: a
// weight matrix moves by its momentum after Newton-Schulz iterations have made that orthogonal.
#pragma once

#include <cstddef>
#include <string>

#include "ops/adamw/adamw.h"

namespace hone {

// Indices of the inputs and outputs.
struct MuonMomentumIn {
  enum : std::size_t { gradient, momentum, norm, hyper, bad };
};
struct MuonMomentumOut {
  enum : std::size_t { gradient, momentum, direction };
};
struct MuonUnitIn {
  enum : std::size_t { x, norm };
};
struct MuonCombineIn {
  enum : std::size_t { x, y };
};
struct MuonApplyIn {
  enum : std::size_t { weight, move, master, hyper, bad };
};
struct MuonApplyOut {
  enum : std::size_t { weight, master };
};

// Rows of a block of weights that form one matrix, such as those of q in a block of q, k and v.
struct MuonRows {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

struct MuonMomentumAttributes {
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v("momentum", momentum);
    v("nesterov", nesterov);
    v("first_row", first_row);
    v("rows", rows);
  }
};

struct MuonUnitAttributes {
  double epsilon = 1e-7;
  std::string dtype = "f32";

  template <class Visitor>
  void fields(Visitor& v) {
    v("epsilon", epsilon);
    v("dtype", dtype);
  }
};

struct MuonCombineAttributes {
  double a = 1;
  double b = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v("a", a);
    v("b", b);
  }
};

struct MuonApplyAttributes {
  std::int64_t first_row = 0;
  double rate_ratio = 1;  // factor of the learning rate, for both the move and the decay
  double rate_scale = 1;  // factor of the learning rate for the move only (muon_scale)
  double weight_decay = 0;
  std::int64_t seed = 0;    // of stochastic rounding
  std::int64_t stream = 0;  // of stochastic rounding; different for each weight

  template <class Visitor>
  void fields(Visitor& v) {
    v("first_row", first_row);
    v("rate_ratio", rate_ratio);
    v("rate_scale", rate_scale);
    v("weight_decay", weight_decay);
    v("seed", seed);
    v("stream", stream);
  }
};

// A block of weights [rows, columns] and its optimizer state.
struct MuonTensors {
  Tensor weight;
  Tensor gradient;
  Tensor momentum;  // f32 (f64)
  Tensor master;    // f32 copy of a bf16 weight, optional
};

// Factor of a matrix's learning rate that follows from its shape, after Jordan or after Moonlight (Liu et al., "Muon is
// scalable for LLM training", 2025).
enum class MuonScale : std::uint8_t {
  kMatchRmsAdamw,  // 0.2 sqrt(max(rows, columns)): updates as large as AdamW's at the same rate (Moonlight)
  kOriginal,       // sqrt(max(1, rows / columns)) (Jordan)
};
[[nodiscard]] double muon_scale(MuonScale scale, std::int64_t rows, std::int64_t columns);

// Returns an approximation of U V^T, where x = U S V^T, for x [m, n] of f32, bf16 or f64 with a Frobenius norm of at
// most 1. It computes `steps` times x = a x + (b g + c g^2) x with g = x x^T (from the right if m > n), where a =
// 3.4445, b = -4.7750 and c = 2.0315; GEMMs are in x's dtype.
[[nodiscard]] Tensor newton_schulz(Tensor x, std::int64_t steps);

struct MuonAttributes {
  MuonRows rows;
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t steps = 5;
  MuonApplyAttributes apply;  // first_row is taken from `rows`
};

// Appends the update of some rows of a block, in place; their gradient is zero afterwards. The steps are
//   momentum += (1 - attributes.momentum) (clipped gradient - momentum)
//   d = momentum x attributes.momentum + gradient x (1 - attributes.momentum) with nesterov, otherwise momentum
//   o = newton_schulz(d / max(|d|, 1e-7)) in the weight's type
//   weight = weight (1 - rate weight_decay) - rate rate_scale o, with rate = learning_rate x rate_ratio
MuonTensors muon(const MuonTensors& tensors, const AdamwStep& step, const MuonAttributes& attributes);

}  // namespace hone
