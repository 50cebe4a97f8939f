// The program of one engine step.
#pragma once

#include "model/model.h"
#include "program/program.h"

namespace hone {

struct GenerationProgramOptions {
  Capacity capacity;
  KvLayout layout;
  DType dtype = DType::f32;
  bool repetition_penalty = false;  // whether samples may have one
};

// Chunks of requests through the model with paged keys and values, then a token for every row that wants one. Inputs:
// those of PagedBatch, "sample_rows" i32 [samples] (rows of the batch), "parameters" f32 [samples, 4] and "keys" i64
// [samples, 2] (ops/sample); with repetition_penalty "penalties" f32 [samples], "occurred_offsets" i32 [samples + 1]
// and "occurred_ids" i32, of which there may be as many as tokens in the pages (ops/repetition_penalty). Outputs:
// "token" i32 [samples], "logp" f32 [samples].
[[nodiscard]] Program trace_generation(const Model& model, const GenerationProgramOptions& options);

}  // namespace hone
