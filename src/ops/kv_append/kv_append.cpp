#include "ops/kv_append/kv_append.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// (qkv, k_cache, v_cache, slots) -> (k_cache, v_cache), in place.
class KvAppend final : public Op {
 public:
  std::string_view name() const override { return "kv_append"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return KvAppendAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& qkv = required(inputs, KvAppendIn::qkv, name());
    const Type& keys = required(inputs, KvAppendIn::k_cache, name());
    const Type& values = required(inputs, KvAppendIn::v_cache, name());
    const Type& slots = required(inputs, KvAppendIn::slots, name());
    const auto& a = attributes.as<KvAppendAttributes>();
    expect_sizes(name(), {a.heads, a.kv_heads, a.head_dim});
    expect(qkv.shape.size() == 2 && qkv.shape[1].size == (a.heads + 2 * a.kv_heads) * a.head_dim, name(),
           text_of("qkv is ", to_text(qkv), "; it does not fit ", a.heads, " query and ", a.kv_heads,
                   " key heads of head_dim ", a.head_dim));
    expect(keys == values && keys.shape.size() == 3 && keys.shape[2].size == a.kv_heads * a.head_dim &&
               keys.dtype == qkv.dtype,
           name(),
           text_of("qkv is ", to_text(qkv), ", the caches ", to_text(keys), " and ", to_text(values), "; expected [",
                   "num_blocks, block_size, ", a.kv_heads * a.head_dim, "] of one dtype"));
    expect(slots.dtype == DType::kI32 && slots.shape.size() == 1 && slots.shape[0] == qkv.shape[0], name(),
           text_of("slots are ", to_text(slots), ", qkv is ", to_text(qkv), "; expected i32[rows]"));
    return {keys, values};
  }
  // Only the rows are read and written, not the whole caches.
  Cost cost(InputTypes inputs, std::span<const Type>, const Attributes& attributes) const override {
    const auto& a = attributes.as<KvAppendAttributes>();
    const Type& qkv = required(inputs, KvAppendIn::qkv, name());
    const auto moved =
        static_cast<double>(qkv.rows() * 2 * a.kv_heads * a.head_dim) * static_cast<double>(size_of(qkv.dtype));
    return {.bytes_read = moved + static_cast<double>(required(inputs, KvAppendIn::slots, name()).bytes()),
            .bytes_written = moved};
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    return output == KvAppendOut::k_cache ? KvAppendIn::k_cache : KvAppendIn::v_cache;
  }
  // Each rank has the pages of its key heads.
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (builder.division(KvAppendIn::qkv) == kWhole) return Op::shard(builder, node);
    KvAppendAttributes own = node.attributes.as<KvAppendAttributes>();
    own.heads /= builder.ranks();
    own.kv_heads /= builder.ranks();
    shard_alike(builder, own, builder.division(KvAppendIn::k_cache));
  }
};

const KvAppend kKvAppend;

}  // namespace

std::pair<Tensor, Tensor> kv_append(Tensor qkv, Tensor k_cache, Tensor v_cache, Tensor slots,
                                    const KvAppendAttributes& attributes) {
  const std::vector<Tensor> inputs{qkv, k_cache, v_cache, slots};
  const std::vector<Tensor> outputs = qkv.program().append(kKvAppend, attributes, inputs);
  return {outputs[KvAppendOut::k_cache], outputs[KvAppendOut::v_cache]};
}

void register_kv_append(OpRegistry& registry) { registry.add(kKvAppend); }

}  // namespace hone
