// Blocks of a store to and from the tensors of a model's folder or an adapter's, in pieces.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "checkpoint/safetensors.h"
#include "model/weight_layout.h"
#include "program/tensor_store.h"

namespace hone {

// The tensors of a model's folder (`in_folder`), or an adapter's, to be written from `weights`; model and weights
// outlive them. A matrix that is stored transposed is staged whole on the host, all else by pieces.
[[nodiscard]] std::vector<TensorSource> weight_sources(const std::vector<WeightSpec>& specs, bool in_folder,
                                                       const TensorStore& weights);

// Reads a part out of the stored tensor that `tensor` describes, whole, as the block holds it: [rows, columns]. A
// stored tensor without slices may end early; the rest of `out` is left alone then.
void read_part(const CheckpointTensor& tensor, const PartSlice& slice, const StoredTensor& stored, DType wanted,
               std::span<std::byte> out);

// The same into the part's rows of its block, which `weights` holds. Stages piece_bytes of the host's memory, or a
// whole part that is stored transposed.
void load_part(const CheckpointTensor& tensor, const PartSlice& slice, const StoredTensor& stored, TensorStore& weights,
               std::size_t piece_bytes = kPieceBytes);

}  // namespace hone
