// A model whose linear layers have their weights in FP8 (core/float8.h), for generation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/wrapped_model.h"

namespace hone {

// The kind of a block decides whether it is in FP8: matrices of linear layers are, everything else is not. Such a block
// of [rows, columns] has the type u8, the bytes of e4m3, and its scales are a separate block, f32 [ceil(rows /
// scale_rows), ceil(columns / 128)]. Everything else is as in the base model, and so are the bits of what it computes
// by the same weights in bf16. weights() are the blocks of the base, followed by the scales, which belong to no part.
class Fp8Model final : public WrappedModel {
 public:
  // `base` may be a rank's part of a model. Throws Error if its cuts are not at multiples of 128 rows and columns,
  // where blocks with one scale begin: the ranks then have the bytes and scales of the whole.
  explicit Fp8Model(std::unique_ptr<Model> base);

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

}  // namespace hone
