#include "engine/generation_program.h"

#include <utility>

#include "ops/gather_rows/gather_rows.h"
#include "ops/linear/linear.h"
#include "ops/repetition_penalty/repetition_penalty.h"
#include "ops/sample/sample.h"
#include "passes/fusion.h"
#include "passes/precision.h"

namespace hone {

namespace {

// What tokens are drawn from.
Tensor penalized_logits(Program& program, Tensor logits, const KvLayout& layout) {
  const Dim samples = logits.shape()[0];
  const Tensor penalties = program.input("penalties", {DType::f32, {samples}});
  const Tensor offsets = program.input("occurred_offsets", {DType::i32, {samples.size + 1}});
  const Tensor ids = program.input("occurred_ids", {DType::i32, {layout.num_blocks * layout.block_size}});
  return repetition_penalty(logits, penalties, offsets, ids);
}

}  // namespace

Program trace_generation(const Model& model, const GenerationProgramOptions& options) {
  Program program;
  PagedBatch batch(program, options.capacity, options.layout, DType::f32);
  WeightBinder weights(program, model.weights(), false);
  const Tensor hidden = model.forward(weights, batch);
  {
    const Scope scope(program, "head");
    const Dim samples(options.capacity.sequences, Count::samples);
    const Tensor rows = program.input("sample_rows", {DType::i32, {samples}});
    const Tensor parameters = program.input("parameters", {DType::f32, {samples, kSampleParameters}});
    const Tensor keys = program.input("keys", {DType::i64, {samples, 2}});
    const Tensor logits = linear(gather_rows(hidden, rows), weights(model.head()), {}, {.f32_output = true});
    const Tensor penalized = options.repetition_penalty ? penalized_logits(program, logits, options.layout) : Tensor();
    const Sampled sampled = sample(logits, parameters, keys, penalized);
    program.output("token", sampled.token);
    program.output("logp", sampled.logp);
  }
  return fuse(with_precision(model.adapted(std::move(program), {}), options.dtype));
}

std::vector<NamedType> kv_types(const Model& model, const KvLayout& layout, DType dtype) {
  const ModelShape& shape = model.shape();
  const Type page{dtype, {layout.num_blocks, layout.block_size, shape.num_key_value_heads * shape.head_dim}};
  std::vector<NamedType> types;
  for (std::int64_t layer = 0; layer < shape.num_hidden_layers; ++layer) {
    types.push_back({KvLayout::key_name(layer), page});
    types.push_back({KvLayout::value_name(layer), page});
  }
  return types;
}

}  // namespace hone
