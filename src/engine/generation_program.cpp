#include "engine/generation_program.h"

#include <utility>

#include "ops/gather_rows/gather_rows.h"
#include "ops/linear/linear.h"
#include "ops/sample/sample.h"
#include "passes/fusion.h"
#include "passes/precision.h"

namespace hone {

Program trace_generation(const Model& model, const Capacity& capacity, const KvLayout& layout, DType dtype) {
  Program program;
  PagedBatch batch(program, capacity, layout, DType::f32);
  WeightBinder weights(program, model.weights(), false);
  const Tensor hidden = model.forward(weights, batch);
  {
    const Scope scope(program, "head");
    const Dim samples(capacity.sequences, Count::samples);
    const Tensor rows = program.input("sample_rows", {DType::i32, {samples}});
    const Tensor parameters = program.input("parameters", {DType::f32, {samples, kSampleParameters}});
    const Tensor keys = program.input("keys", {DType::i64, {samples, 2}});
    const Tensor logits = linear(gather_rows(hidden, rows), weights(model.head()), {}, {.f32_output = true});
    const Sampled sampled = sample(logits, parameters, keys);
    program.output("token", sampled.token);
    program.output("logp", sampled.logp);
  }
  return fuse(with_precision(model.adapted(std::move(program), {}), dtype));
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
