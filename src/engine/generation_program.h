// The program of one engine step.
#pragma once

#include <vector>

#include "model/model.h"
#include "program/program.h"
#include "program/tensor_store.h"

namespace hone {

// Chunks of requests through the model with paged keys and values, then a token for every row that wants one. Inputs:
// those of PagedBatch, "sample_rows" i32 [samples] (rows of the batch), "parameters" f32 [samples, 4] and "keys" i64
// [samples, 2] (ops/sample). Outputs: "token" i32 [samples], "logp" f32 [samples].
[[nodiscard]] Program trace_generation(const Model& model, const Capacity& capacity, const KvLayout& layout,
                                       DType dtype);

// The states that the program binds: the pages of every layer.
[[nodiscard]] std::vector<NamedType> kv_types(const Model& model, const KvLayout& layout, DType dtype);

}  // namespace hone
