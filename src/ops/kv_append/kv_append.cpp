#include "ops/kv_append/kv_append.h"

#include <array>

#include "core/error.h"
#include "ops/registry.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// (qkv, k_cache, v_cache, slots) -> (k_cache, v_cache), in place; with FP8 pages the scales follow on both sides.
class KvAppend final : public Op {
 public:
  std::string_view name() const override { return "kv_append"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return KvAppendAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& qkv = required(inputs, KvAppendIn::qkv, name());
    const KvPageTypes pages(inputs, KvAppendIn::k_cache, KvAppendIn::k_scales, name());
    const Type& slots = required(inputs, KvAppendIn::slots, name());
    const auto& a = attributes.as<KvAppendAttributes>();
    expect_sizes(name(), {a.heads, a.kv_heads, a.head_dim});
    expect(qkv.shape.size() == 2 && qkv.shape[1].size == (a.heads + 2 * a.kv_heads) * a.head_dim, name(),
           text_of("qkv is ", to_text(qkv), "; it does not fit ", a.heads, " query and ", a.kv_heads,
                   " key heads of head_dim ", a.head_dim));
    pages.check(qkv.dtype, a.kv_heads, a.head_dim, name());
    expect(slots.dtype == DType::kI32 && slots.shape.size() == 1 && slots.shape[0] == qkv.shape[0], name(),
           text_of("slots are ", to_text(slots), ", qkv is ", to_text(qkv), "; expected i32[rows]"));
    if (pages.key_scales == nullptr) return {pages.keys, pages.values};
    return {pages.keys, pages.values, *pages.key_scales, *pages.value_scales};
  }
  // Only the rows are read and written, not the whole caches.
  Cost cost(InputTypes inputs, std::span<const Type>, const Attributes& attributes) const override {
    const auto& a = attributes.as<KvAppendAttributes>();
    const Type& qkv = required(inputs, KvAppendIn::qkv, name());
    const auto heads = static_cast<double>(qkv.rows() * 2 * a.kv_heads);
    const auto elements = heads * static_cast<double>(a.head_dim);
    const Type& keys = required(inputs, KvAppendIn::k_cache, name());
    const double scales = keys.dtype == DType::kU8 ? heads : 0;
    return {.bytes_read = elements * static_cast<double>(size_of(qkv.dtype)) +
                          static_cast<double>(required(inputs, KvAppendIn::slots, name()).bytes()),
            .bytes_written = elements * static_cast<double>(size_of(keys.dtype)) + scales};
  }
  std::optional<std::size_t> alias(std::size_t output) const override { return kPages.at(output); }
  // Each rank has the pages of its key heads.
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (builder.division(KvAppendIn::qkv) == kWhole) return Op::shard(builder, node);
    KvAppendAttributes own = node.attributes.as<KvAppendAttributes>();
    own.heads /= builder.ranks();
    own.kv_heads /= builder.ranks();
    const std::vector<Tensor> pages = builder.append(own);
    for (std::size_t i = 0; i < pages.size(); ++i) builder.set_output(i, pages[i], builder.division(kPages.at(i)));
  }

 private:
  // The input that each output overwrites.
  static constexpr std::array<std::size_t, 4> kPages{KvAppendIn::k_cache, KvAppendIn::v_cache, KvAppendIn::k_scales,
                                                     KvAppendIn::v_scales};
};

const KvAppend kKvAppend;

}  // namespace

KvPageTypes::KvPageTypes(InputTypes inputs, std::size_t first, std::size_t scales, std::string_view op)
    : keys(required(inputs, first, op)),
      values(required(inputs, first + 1, op)),
      key_scales(inputs.size() > scales ? &required(inputs, scales, op) : nullptr),
      value_scales(inputs.size() > scales ? &required(inputs, scales + 1, op) : nullptr) {}

void KvPageTypes::check(DType dtype, std::int64_t kv_heads, std::int64_t head_dim, std::string_view op) const {
  const bool fp8 = key_scales != nullptr;
  const auto scales_text = [&] {
    return fp8 ? text_of(", their scales ", to_text(*key_scales), " and ", to_text(*value_scales)) : std::string();
  };
  const auto fits = [&] {
    if (!(keys == values) || keys.shape.size() != 3 || keys.shape[2].size != kv_heads * head_dim) return false;
    if (!fp8) return keys.dtype == dtype;
    const Type scales{DType::kU8, {keys.shape[0], kv_heads * keys.shape[1].size}};
    return keys.dtype == DType::kU8 && *key_scales == scales && *value_scales == scales &&
           (dtype == DType::kBf16 || dtype == DType::kF32);
  };
  expect(fits(), op,
         text_of("the pages are ", to_text(keys), " and ", to_text(values), scales_text(), "; they do not fit ",
                 kv_heads, " key heads of head_dim ", head_dim, " and dtype ", name_of(dtype)));
}

KvPages kv_append(Tensor qkv, const KvPages& pages, Tensor slots, const KvAppendAttributes& attributes) {
  std::vector<Tensor> inputs{qkv, pages.keys, pages.values, slots};
  if (pages.key_scales) inputs.insert(inputs.end(), {pages.key_scales, pages.value_scales});
  const std::vector<Tensor> outputs = qkv.program().append(kKvAppend, attributes, inputs);
  KvPages appended{outputs[KvAppendOut::k_cache], outputs[KvAppendOut::v_cache], {}, {}};
  if (outputs.size() > KvAppendOut::k_scales) {
    appended.key_scales = outputs[KvAppendOut::k_scales];
    appended.value_scales = outputs[KvAppendOut::v_scales];
  }
  return appended;
}

std::pair<Tensor, Tensor> kv_append(Tensor qkv, Tensor k_cache, Tensor v_cache, Tensor slots,
                                    const KvAppendAttributes& attributes) {
  const KvPages pages = kv_append(qkv, {k_cache, v_cache, {}, {}}, slots, attributes);
  return {pages.keys, pages.values};
}

void register_kv_append(OpRegistry& registry) { registry.add(kKvAppend); }

}  // namespace hone
