// A model whose linear layers have their weights in FP8 (core/float8.h), for generation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "model/wrapped_model.h"

namespace hone {

// The products of the linear layers of an Fp8Model.
enum class Fp8Layers : std::uint8_t {
  kWeights,   // activations in bf16 by FP8 weights: the bits of the same weights in bf16
  kProducts,  // activations quantized to e4m3 (ops/quantize) by FP8 weights, as training with fp8: true
};

// The kind of a block decides whether it is in FP8: matrices of linear layers are, everything else is not. Such a block
// of [rows, columns] has the type u8, the bytes of e4m3, and its scales are a separate block, f32 [ceil(rows /
// scale_rows), ceil(columns / 128)]. Everything else is as in the base model, and so are the bits of what it computes
// by the same weights in bf16. weights() are the blocks of the base, followed by the scales, which belong to no part.
//
// With Fp8Layers::kProducts the blocks are those whose rows and columns, and the first rows of whose parts, are
// multiples of 128; layers of other dimensions stay as in the base model. Those are the layers that training multiplies
// in FP8, experts excepted.
class Fp8Model final : public WrappedModel {
 public:
  // `base` may be a rank's part of a model. Throws Error if its cuts are not at multiples of 128 rows and columns,
  // where blocks with one scale begin: the ranks then have the bytes and scales of the whole. Throws Error, too, if
  // kProducts finds no layer to multiply.
  explicit Fp8Model(std::unique_ptr<Model> base, Fp8Layers layers = Fp8Layers::kWeights);

  // The whole model of a part, whose weights are not in FP8; otherwise this model.
  const Model& whole() const override { return &base().whole() == &base() ? *this : base().whole(); }

  // Replaces linear() by fp8_linear() where the weight is in FP8. Throws Defect for training.
  Program adapted(Program program, const TraceUse& use) const override;
};

// Returns true if the block is one that Fp8Model stores in FP8.
[[nodiscard]] bool is_fp8_block(const WeightSpec& spec);
// Name of the block with the scales of a block.
[[nodiscard]] std::string fp8_scale_name(std::string_view block);
// Rows of a block for each row of its scales: 128, or the greatest divisor of it so that no such rows have two scales,
// where parts, or the blocks of the tensors that they are slices of, begin elsewhere.
[[nodiscard]] std::int64_t fp8_scale_rows(const WeightSpec& spec);

// Returns true if the bytes of a block are in the order of backend/fp8_fragments.h on a device of this kind. Otherwise
// they are row by row.
[[nodiscard]] bool fp8_block_in_fragments(const WeightSpec& spec, DeviceKind device);

}  // namespace hone
