// Copies weight blocks between a tensor store and the tensors of a model folder or adapter file, in pieces of bounded
// size.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "checkpoint/fp8_tensor.h"
#include "checkpoint/safetensors.h"
#include "model/weight_layout.h"
#include "program/tensor_store.h"

namespace hone {

// Sources for writing the tensors of a model folder (`in_folder`) or of an adapter file from `weights`. `specs` and
// `weights` must outlive them. A matrix that is stored transposed is staged as a whole in host memory, everything else
// in pieces.
[[nodiscard]] std::vector<TensorSource> weight_sources(const std::vector<WeightSpec>& specs, bool in_folder,
                                                       const TensorStore& weights);

// Reads a whole part from the stored tensor described by `tensor`, FP8 converted, in the orientation of blocks, [rows,
// columns]. A stored tensor that is not sliced may have fewer rows; the rest of `out` is then left unchanged.
void read_part(const CheckpointTensor& tensor, const PartSlice& slice, const ScaledTensor& stored, DType wanted,
               std::span<std::byte> out);

// Reads a part into its rows of the block in `weights`. The staging buffer in host memory takes piece_bytes, or the
// whole part if it is stored transposed.
void load_part(const CheckpointTensor& tensor, const PartSlice& slice, const ScaledTensor& stored, TensorStore& weights,
               std::size_t piece_bytes = kPieceBytes);

}  // namespace hone
