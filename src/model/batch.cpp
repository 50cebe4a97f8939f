#include "model/batch.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "ops/attention/attention.h"
#include "ops/dropout/dropout.h"
#include "ops/head_columns/head_columns.h"
#include "ops/kv_append/kv_append.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/latent_cache/latent_cache.h"
#include "ops/latent_heads/latent_heads.h"
#include "ops/latent_projection/latent_projection.h"
#include "ops/linear/linear.h"
#include "ops/paged_attention/paged_attention.h"

namespace hone {

Tensor Batch::drop(Tensor x, double probability) {
  if (!training || probability == 0) return x;
  Program& program = x.program();
  const ValueId known = program.find(Role::kInput, kDropoutInput);
  const Tensor draw =
      known != kNoValue ? program.tensor(known) : program.input(kDropoutInput, {DType::kI32, {kDropoutDraw}});
  return dropout(x, draw, {.probability = probability, .site = sites_++});
}

Tensor Batch::targets() const {
  constexpr const char* kName = "targets";
  Program& program = tokens.program();
  const ValueId known = program.find(Role::kInput, kName);
  return known != kNoValue ? program.tensor(known) : program.input(kName, tokens.type());
}

void Batch::expect_new(std::string_view name) const {
  const bool known = std::ranges::any_of(losses_, [&](const AddedLoss& each) { return each.name == name; }) ||
                     std::ranges::any_of(statistics_, [&](const ModelStatistic& each) { return each.name == name; });
  HONE_ASSERT(learns && !known, "the model gives ", name, known ? " twice" : " in a program without a loss");
}

void Batch::add_loss(AddedLoss loss) {
  expect_new(loss.name);
  losses_.push_back(std::move(loss));
}

void Batch::add_statistic(ModelStatistic statistic) {
  expect_new(statistic.name);
  statistics_.push_back(std::move(statistic));
}

namespace {

LatentHeadsAttributes sizes_of(const LatentHeads& h) {
  return {.heads = h.heads, .nope_dim = h.nope_dim, .rope_dim = h.rope_dim, .value_dim = h.value_dim};
}

}  // namespace

Tensor Batch::attend(std::int64_t layer, const LatentHeads& h) {
  const LatentHeadsAttributes sizes = sizes_of(h);
  const Tensor qkv = latent_heads(h.query, linear(h.latent, h.up), h.rope_key, sizes);
  const Tensor o = attend(layer, qkv,
                          {.heads = h.heads,
                           .kv_heads = h.heads,
                           .head_dim = sizes.head_dim(),
                           .scale = h.scale,
                           .value_dim = h.value_dim});
  return head_columns(o, {.heads = h.heads, .head_dim = sizes.head_dim(), .columns = h.value_dim});
}

DocumentBatch::DocumentBatch(Program& program, const Capacity& capacity) {
  const Dim rows(capacity.tokens, Count::tokens);
  tokens = program.input("tokens", {DType::kI32, {rows}});
  positions = program.input("positions", {DType::kI32, {rows}});
  cu_seqlens_ = program.input("cu_seqlens", {DType::kI32, {capacity.sequences + 1}});
}

Tensor DocumentBatch::attend(std::int64_t, Tensor qkv, const HeadShape& shape) {
  return attention(qkv, cu_seqlens_,
                   {.heads = shape.heads,
                    .kv_heads = shape.kv_heads,
                    .head_dim = shape.head_dim,
                    .scale = shape.scale,
                    .value_dim = shape.value_dim});
}

std::string KvLayout::key_name(std::int64_t layer) { return "layers." + std::to_string(layer) + ".keys"; }
std::string KvLayout::value_name(std::int64_t layer) { return "layers." + std::to_string(layer) + ".values"; }
std::string KvLayout::key_scale_name(std::int64_t layer) { return "layers." + std::to_string(layer) + ".key_scales"; }
std::string KvLayout::value_scale_name(std::int64_t layer) {
  return "layers." + std::to_string(layer) + ".value_scales";
}
std::string KvLayout::latent_name(std::int64_t layer) { return "layers." + std::to_string(layer) + ".latent"; }

PagedBatch::PagedBatch(Program& program, const Capacity& capacity, const KvLayout& layout, DType dtype)
    : layout_(layout), dtype_(dtype) {
  const Dim rows(capacity.tokens, Count::tokens);
  const Dim requests(capacity.sequences, Count::sequences);
  tokens = program.input("tokens", {DType::kI32, {rows}});
  positions = program.input("positions", {DType::kI32, {rows}});
  cu_seqlens_ = program.input("cu_seqlens", {DType::kI32, {capacity.sequences + 1}});
  slots_ = program.input("slots", {DType::kI32, {rows}});
  block_table_ = program.input("block_table", {DType::kI32, {requests, layout.max_blocks}});
  starts_ = program.input("starts", {DType::kI32, {requests}});
  if (layout.expands()) pages_ = program.input("pages", {DType::kI32, {Dim(layout.num_blocks, page_count())}});
}

Tensor PagedBatch::attend(std::int64_t layer, Tensor qkv, const HeadShape& shape) {
  Program& program = qkv.program();
  const bool fp8 = layout_.dtype == KvCacheDtype::kFp8;
  const Type page{fp8 ? DType::kU8 : dtype_, {layout_.num_blocks, layout_.block_size, shape.kv_heads * shape.head_dim}};
  KvPages old{program.state(KvLayout::key_name(layer), page), program.state(KvLayout::value_name(layer), page), {}, {}};
  if (fp8) {
    const Type scales{DType::kU8, {layout_.num_blocks, shape.kv_heads * layout_.block_size}};
    old.key_scales = program.state(KvLayout::key_scale_name(layer), scales);
    old.value_scales = program.state(KvLayout::value_scale_name(layer), scales);
  }
  const KvPages pages =
      kv_append(qkv, old, slots_, {.heads = shape.heads, .kv_heads = shape.kv_heads, .head_dim = shape.head_dim});
  return paged_attention(qkv, pages, block_table_, cu_seqlens_, starts_,
                         {.heads = shape.heads,
                          .kv_heads = shape.kv_heads,
                          .head_dim = shape.head_dim,
                          .scale = shape.scale,
                          .block_size = layout_.block_size,
                          .value_dim = shape.value_dim});
}

Tensor PagedBatch::attend_absorbed(const LatentHeads& h, Tensor cache) const {
  const LatentHeadsAttributes sizes = sizes_of(h);
  const Tensor query = latent_projection_queries(h.query, h.up, sizes);
  const Tensor latents = latent_attention(query, cache, block_table_, cu_seqlens_, starts_,
                                          {.heads = h.heads, .rank = h.latent.shape()[1].size, .scale = h.scale});
  return latent_projection_values(latents, h.up, sizes);
}

Tensor PagedBatch::attend(std::int64_t layer, const LatentHeads& h) {
  if (!layout_.latent) return Batch::attend(layer, h);
  const LatentHeadsAttributes sizes = sizes_of(h);
  const std::int64_t width = h.latent.shape()[1].size + h.rope_dim;
  const Type page{dtype_, {layout_.num_blocks, layout_.block_size, width}};
  const Tensor rows = h.query.program().state(KvLayout::latent_name(layer), page);
  const Tensor cache = latent_cache_append(h.latent, h.rope_key, rows, slots_);
  if (!layout_.expands()) return attend_absorbed(h, cache);
  const auto [latent, rope_key] = latent_cache_rows(cache, pages_, h.rope_dim);
  const auto [keys, values] =
      latent_cache_pages(linear(latent, h.up), rope_key, {.heads = sizes, .block_size = layout_.block_size});
  const Tensor o = paged_attention(h.query, keys, values, block_table_, cu_seqlens_, starts_,
                                   {.heads = h.heads,
                                    .kv_heads = h.heads,
                                    .head_dim = sizes.head_dim(),
                                    .scale = h.scale,
                                    .block_size = layout_.block_size,
                                    .value_dim = h.value_dim,
                                    .computed = true});
  return head_columns(o, {.heads = h.heads, .head_dim = sizes.head_dim(), .columns = h.value_dim});
}

}  // namespace hone
