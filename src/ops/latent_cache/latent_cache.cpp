#include "ops/latent_cache/latent_cache.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// Bytes of a type, read and written once.
Cost copy_cost(std::int64_t elements, DType dtype) {
  const double bytes = static_cast<double>(elements) * static_cast<double>(size_of(dtype));
  return {.bytes_read = bytes, .bytes_written = bytes};
}

// (latent, rope_key, cache, slots) -> cache, in place.
class LatentAppend final : public Op {
 public:
  std::string_view name() const override { return "latent_cache_append"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& latent = required(inputs, LatentAppendIn::latent, name());
    const Type& rope_key = required(inputs, LatentAppendIn::rope_key, name());
    const Type& cache = required(inputs, LatentAppendIn::cache, name());
    const Type& slots = required(inputs, LatentAppendIn::slots, name());
    const bool rows = latent.shape.size() == 2 && rope_key.shape.size() == 2 && latent.shape[0] == rope_key.shape[0] &&
                      latent.dtype == rope_key.dtype && is_floating(latent.dtype);
    expect(rows && cache.shape.size() == 3 && cache.dtype == latent.dtype &&
               cache.shape[2].size == latent.shape[1].size + rope_key.shape[1].size,
           name(),
           text_of("latent is ", to_text(latent), ", rope_key ", to_text(rope_key), ", cache ", to_text(cache),
                   "; expected [rows, rank], [rows, rope_dim] and [num_blocks, block_size, rank + rope_dim] of one "
                   "floating type"));
    expect(slots.dtype == DType::kI32 && slots.shape.size() == 1 && slots.shape[0] == latent.shape[0], name(),
           text_of("slots are ", to_text(slots), ", latent is ", to_text(latent), "; expected i32[rows]"));
    return {cache};
  }
  // Only the rows are read and written, not the whole cache.
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes&) const override {
    const Type& latent = required(inputs, LatentAppendIn::latent, name());
    Cost cost = copy_cost(latent.rows() * outputs[0].shape[2].size, latent.dtype);
    cost.bytes_read += static_cast<double>(required(inputs, LatentAppendIn::slots, name()).bytes());
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t) const override { return LatentAppendIn::cache; }
};

// (cache, pages) -> (latent, rope_key)
class LatentRows final : public Op {
 public:
  std::string_view name() const override { return "latent_cache_rows"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return LatentRowsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& cache = required(inputs, LatentRowsIn::cache, name());
    const Type& pages = required(inputs, LatentRowsIn::pages, name());
    const std::int64_t rope_dim = attributes.as<LatentRowsAttributes>().rope_dim;
    expect(cache.shape.size() == 3 && is_floating(cache.dtype) && cache.shape[1].size > 0 && rope_dim > 0 &&
               rope_dim < cache.shape[2].size,
           name(),
           text_of("cache is ", to_text(cache), ", rope_dim ", rope_dim,
                   "; expected [num_blocks, block_size, rank + rope_dim] of a floating type"));
    expect(pages.dtype == DType::kI32 && pages.shape.size() == 1 && pages.shape[0].factor == 1, name(),
           text_of("pages are ", to_text(pages), "; expected i32[n]"));
    const std::int64_t size = cache.shape[1].size;
    const Dim rows(pages.shape[0].size * size, pages.shape[0].count, size);
    const Dim plain(pages.shape[0].size * size);
    const Dim& dim = pages.shape[0].count == Count::none ? plain : rows;
    return {Type{cache.dtype, {dim, cache.shape[2].size - rope_dim}}, Type{cache.dtype, {dim, rope_dim}}};
  }
  Cost cost(InputTypes, std::span<const Type> outputs, const Attributes&) const override {
    const Type& latent = outputs[LatentRowsOut::latent];
    return copy_cost(latent.elements() + outputs[LatentRowsOut::rope_key].elements(), latent.dtype);
  }
};

// (kv, rope_key) -> (keys, values)
class LatentPages final : public Op {
 public:
  std::string_view name() const override { return "latent_cache_pages"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return LatentPagesAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& kv = required(inputs, LatentPagesIn::kv, name());
    const Type& rope_key = required(inputs, LatentPagesIn::rope_key, name());
    const auto& a = attributes.as<LatentPagesAttributes>();
    const LatentHeadsAttributes& h = a.heads;
    expect_sizes(name(), {h.heads, h.nope_dim, h.rope_dim, h.value_dim, a.block_size});
    expect(
        h.heads > 0 && h.nope_dim > 0 && h.rope_dim > 0 && h.value_dim > 0 && a.block_size > 0 &&
            h.value_dim <= h.head_dim(),
        name(),
        text_of(h.heads, " heads of nope_dim ", h.nope_dim, ", rope_dim ", h.rope_dim, " and value_dim ", h.value_dim,
                " in pages of ", a.block_size, "; expected positive sizes and value_dim up to ", h.head_dim()));
    const auto is = [&](const Type& type, std::int64_t width) {
      return type.dtype == kv.dtype && type.shape.size() == 2 && type.shape[0] == kv.shape[0] &&
             type.shape[1].size == width;
    };
    expect(is_floating(kv.dtype) && is(kv, h.kv_width()) && is(rope_key, h.rope_dim) && kv.rows() % a.block_size == 0,
           name(),
           text_of("kv is ", to_text(kv), ", rope_key ", to_text(rope_key), "; expected [pages x ", a.block_size, ", ",
                   h.kv_width(), "] and as many rows of ", h.rope_dim, " of one floating type"));
    const Dim& rows = kv.shape[0];
    expect(rows.count == Count::none || rows.factor == a.block_size, name(),
           text_of("kv is ", to_text(kv), "; its count must be of pages of ", a.block_size, " rows"));
    const Type pages{kv.dtype, {Dim(rows.size / a.block_size, rows.count), a.block_size, h.query_width()}};
    return {pages, pages};
  }
  // Pages are divided by heads as those of a cache of keys and values: along dimension 2.
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (builder.division(LatentPagesIn::kv) != kDividedColumns) return Op::shard(builder, node);
    LatentPagesAttributes own = node.attributes.as<LatentPagesAttributes>();
    own.heads.heads /= builder.ranks();
    shard_alike(builder, own, 2);
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes&) const override {
    return {.bytes_read = static_cast<double>(required(inputs, LatentPagesIn::kv, name()).bytes() +
                                              required(inputs, LatentPagesIn::rope_key, name()).bytes()),
            .bytes_written =
                static_cast<double>(outputs[LatentPagesOut::keys].bytes() + outputs[LatentPagesOut::values].bytes())};
  }
};

const LatentAppend kAppend;
const LatentRows kRows;
const LatentPages kPages;

}  // namespace

Tensor latent_cache_append(Tensor latent, Tensor rope_key, Tensor cache, Tensor slots) {
  return latent.program().append1(kAppend, {}, {latent, rope_key, cache, slots});
}

std::pair<Tensor, Tensor> latent_cache_rows(Tensor cache, Tensor pages, std::int64_t rope_dim) {
  const std::vector<Tensor> inputs{cache, pages};
  const std::vector<Tensor> outputs = cache.program().append(kRows, LatentRowsAttributes{.rope_dim = rope_dim}, inputs);
  return {outputs[LatentRowsOut::latent], outputs[LatentRowsOut::rope_key]};
}

std::pair<Tensor, Tensor> latent_cache_pages(Tensor kv, Tensor rope_key, const LatentPagesAttributes& attributes) {
  const std::vector<Tensor> inputs{kv, rope_key};
  const std::vector<Tensor> outputs = kv.program().append(kPages, attributes, inputs);
  return {outputs[LatentPagesOut::keys], outputs[LatentPagesOut::values]};
}

void register_latent_cache(OpRegistry& registry) {
  registry.add(kAppend);
  registry.add(kRows);
  registry.add(kPages);
}

}  // namespace hone
