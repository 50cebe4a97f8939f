#include "ops/rope_append/rope_append.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "ops/registry.h"

namespace hone {
namespace {

// (qkv, table, k_cache, v_cache, slots) -> (rotated qkv, k_cache, v_cache), the caches in place.
class RopeAppend final : public FusedOp {
 public:
  std::string_view name() const override { return "rope_append"; }
  OpCategory category() const override { return OpCategory::kRope; }
  Attributes default_attributes() const override { return KvAppendAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Parts parts = parts_of(inputs);
    std::vector<Type> outputs =
        op_registry().get("rope").infer(parts.rotated, rope_of(attributes.as<KvAppendAttributes>()));
    for (const Type& cache : op_registry().get("kv_append").infer(parts.appended, attributes)) outputs.push_back(cache);
    return outputs;
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const Parts parts = parts_of(inputs);
    Cost cost =
        op_registry().get("rope").cost(parts.rotated, outputs.first(1), rope_of(attributes.as<KvAppendAttributes>()));
    const Cost append = op_registry().get("kv_append").cost(parts.appended, outputs.subspan(1), attributes);
    cost.bytes_read += static_cast<double>(required(inputs, RopeAppendIn::slots, name()).bytes());
    cost.bytes_written += append.bytes_written;
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    if (output == RopeAppendOut::qkv) return std::nullopt;
    constexpr std::array<std::size_t, 5> kInputs{RopeAppendIn::qkv, RopeAppendIn::k_cache, RopeAppendIn::v_cache,
                                                 RopeAppendIn::k_scales, RopeAppendIn::v_scales};
    return kInputs.at(output);
  }
  int fusion_priority() const override { return 400; }
  // Fuses a rope and the kv_append right after it that appends what it has rotated.
  std::optional<Fusion> fuse(const Program& program, std::size_t first) const override {
    const std::vector<Node>& nodes = program.nodes();
    if (nodes[first].op->name() != "rope" || first + 1 == nodes.size()) return std::nullopt;
    const Node& rope = nodes[first];
    const Node& append = nodes[first + 1];
    if (append.op->name() != "kv_append" || append.inputs[KvAppendIn::qkv] != rope.outputs[0]) return std::nullopt;
    const auto& rotation = rope.attributes.as<RopeAttributes>();
    const RopeAttributes all = rope_of(append.attributes.as<KvAppendAttributes>());
    if (rotation.inverse || rotation.heads != all.heads || rotation.head_dim != all.head_dim) return std::nullopt;
    if (rotation.offset != 0 || rotation.interleaved) return std::nullopt;
    Fusion fusion{.nodes = {first, first + 1},
                  .inputs = {rope.inputs[RopeIn::x], rope.inputs[RopeIn::table], append.inputs[KvAppendIn::k_cache],
                             append.inputs[KvAppendIn::v_cache], append.inputs[KvAppendIn::slots]},
                  .attributes = append.attributes,
                  .outputs = {{rope.outputs[0], RopeAppendOut::qkv}}};
    // Scales of FP8 pages follow.
    for (std::size_t i = KvAppendIn::k_scales; i < append.inputs.size(); ++i) fusion.inputs.push_back(append.inputs[i]);
    for (std::size_t i = 0; i < append.outputs.size(); ++i)
      fusion.outputs.push_back({append.outputs[i], RopeAppendOut::k_cache + i});
    return fusion;
  }

 private:
  // Types of the inputs of rope, and of those of kv_append.
  struct Parts {
    std::vector<std::optional<Type>> rotated, appended;
  };
  Parts parts_of(InputTypes inputs) const {
    const Type& qkv = required(inputs, RopeAppendIn::qkv, name());
    Parts parts{
        .rotated = {qkv, required(inputs, RopeAppendIn::table, name())},
        .appended = {qkv, required(inputs, RopeAppendIn::k_cache, name()),
                     required(inputs, RopeAppendIn::v_cache, name()), required(inputs, RopeAppendIn::slots, name())}};
    const auto scales = inputs.subspan(std::min<std::size_t>(inputs.size(), RopeAppendIn::k_scales));
    parts.appended.insert(parts.appended.end(), scales.begin(), scales.end());
    return parts;
  }
};

const RopeAppend kRopeAppend;

}  // namespace

std::pair<Tensor, KvPages> rope_append(Tensor qkv, Tensor table, const KvPages& pages, Tensor slots,
                                       const KvAppendAttributes& attributes) {
  std::vector<Tensor> inputs{qkv, table, pages.keys, pages.values, slots};
  if (pages.key_scales) inputs.insert(inputs.end(), {pages.key_scales, pages.value_scales});
  const std::vector<Tensor> outputs = qkv.program().append(kRopeAppend, attributes, inputs);
  KvPages appended{outputs[RopeAppendOut::k_cache], outputs[RopeAppendOut::v_cache], {}, {}};
  if (outputs.size() > RopeAppendOut::k_scales) {
    appended.key_scales = outputs[RopeAppendOut::k_scales];
    appended.value_scales = outputs[RopeAppendOut::v_scales];
  }
  return {outputs[RopeAppendOut::qkv], appended};
}

std::tuple<Tensor, Tensor, Tensor> rope_append(Tensor qkv, Tensor table, Tensor k_cache, Tensor v_cache, Tensor slots,
                                               const KvAppendAttributes& attributes) {
  const auto [rotated, pages] = rope_append(qkv, table, {k_cache, v_cache, {}, {}}, slots, attributes);
  return {rotated, pages.keys, pages.values};
}

void register_rope_append(OpRegistry& registry) { registry.add(kRopeAppend); }

}  // namespace hone
