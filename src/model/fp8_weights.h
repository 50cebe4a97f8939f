// Loads blocks of an Fp8Model: weights that are stored in FP8 as they are, others quantized.
#pragma once

#include <cstdint>
#include <span>

#include "checkpoint/fp8_tensor.h"
#include "model/weight_layout.h"
#include "program/tensor_store.h"

namespace hone {

// Copies rows of an FP8 block, from `row` on, to the store, in the order that its device has them in
// (backend/fp8_fragments.h). `bytes` is [rows, columns]; rows of a part, or pieces of it that begin at multiples of
// 128.
void upload_fp8_rows(const WeightSpec& spec, std::int64_t row, std::span<const std::uint8_t> bytes,
                     TensorStore& weights);

// Loads a part of an FP8 block, and its scales, from the stored tensor. A part that is stored in FP8 keeps its
// bytes and scales, transposed if it is a whole tensor that is stored transposed. Every other part is quantized in
// blocks of 128 x 128 from its first element on, in pieces of some blocks, or as a whole if it is stored transposed.
void load_fp8_part(const CheckpointTensor& tensor, const PartSlice& slice, const ScaledTensor& stored,
                   TensorStore& weights);

// Quantizes rows [row, row + rows) of a block, as a part of it whose first element begins a block of 128 x 128, or as
// 128 rows, or their rest, of such a part. `values` is [rows, columns]. Throws Error, naming `name`, if a value is not
// finite or too large.
void store_quantized(const WeightSpec& spec, std::string_view name, std::int64_t row, std::span<const BFloat16> values,
                     TensorStore& weights);

// Quantizes all parts of a block. `values` is [rows, columns] of the block.
void store_quantized_parts(const WeightSpec& spec, std::span<const BFloat16> values, TensorStore& weights);

}  // namespace hone
