// Functions that read the keys which the configurations of decoders share: layers, rotary positions, score scale.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config_reader.h"
#include "model/weight_spec.h"
#include "ops/rope/rope.h"

namespace hone {

// Most layers of a model. parse_layers() throws Error above.
inline constexpr std::int64_t kMostLayers = 10'000;
[[nodiscard]] std::int64_t parse_layers(const ConfigReader& config);

// Throws Error if a model of these weights is so large that sums of sizes in bytes could overflow.
void check_parameter_count(const std::vector<WeightSpec>& specs);

// Reads the rotary positions of heads of which `head_dim` elements are rotated. Both spellings are read: rope_theta
// with rope_scaling, and rope_parameters of transformers 5, which contains both. Throws Error for a scaling that hone
// does not have.
[[nodiscard]] RopeTableAttributes parse_rope(const ConfigReader& config, std::int64_t head_dim, double default_theta);

// Yarn's factor of a length that was scaled by `factor`: 1 + 0.1 mscale ln(factor), or 1 if it was not extended.
[[nodiscard]] double yarn_mscale(double factor, double mscale);

// Factor of the scores of heads of `head_dim` elements: 1 / sqrt(head_dim), and with yarn and mscale_all_dim the square
// of its yarn_mscale() (DeepSeek).
[[nodiscard]] double parse_score_scale(const ConfigReader& config, std::int64_t head_dim);

}  // namespace hone
