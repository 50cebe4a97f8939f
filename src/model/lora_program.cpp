// Puts adapters into a traced program: a pass over its linear layers, so that no family knows of them.
#include <algorithm>

#include "core/error.h"
#include "model/lora.h"
#include "ops/dropout/dropout.h"
#include "ops/linear/linear.h"

namespace hone {
namespace {

class Adapting {
 public:
  Adapting(const LoraModel& model, const Program& from, const TraceUse& use)
      : model_(model), from_(from), use_(use), rewriter_(from) {
    for (const Node& node : from.nodes()) {
      if (node.op->name() == "dropout") site_ = std::max(site_, node.attributes.as<DropoutAttributes>().site + 1);
    }
    replace_saved();
  }

  Program run() {
    for (const Node& node : from_.nodes()) {
      const std::string_view block = block_of(node);
      if (block.empty()) {
        rewriter_.replay(node);
        continue;
      }
      rewriter_.program().set_scope(node.scope);
      rewriter_.program().set_phase(node.phase);
      rewriter_.map(node.outputs[0], adapt(node, block));
    }
    return rewriter_.finish();
  }

 private:
  Program& program() { return rewriter_.program(); }

  Tensor weight(const std::string& name) {
    for (const WeightSpec& spec : model_.weights()) {
      if (spec.name != name) continue;
      return program().weight(name, {DType::f32, Shape(spec.shape.begin(), spec.shape.end())}, use_.trainable);
    }
    throw Defect(text_of("the adapter has no weight ", name));
  }

  void replace_saved() {
    for (const auto& [name, copy] : model_.saved()) {
      const ValueId id = from_.find(Role::weight, name);
      if (id != kNoValue) rewriter_.map(id, weight(copy));
    }
  }

  // The block with an adapter whose linear layer this node is, or nothing.
  [[nodiscard]] std::string_view block_of(const Node& node) const {
    if (node.op->name() != "linear") return {};
    const std::string& name = from_.value(node.inputs[1]).name;
    return model_.blocks().contains(name) ? std::string_view(name) : std::string_view();
  }

  Tensor drop(Tensor x) {
    const double probability = model_.lora().dropout;
    if (!use_.dropout || probability == 0) return x;
    const ValueId known = program().find(Role::input, kDropoutInput);
    const Tensor draw =
        known != kNoValue ? program().tensor(known) : program().input(kDropoutInput, {DType::i32, {kDropoutDraw}});
    return dropout(x, draw, {.probability = probability, .site = site_++});
  }

  Tensor adapt(const Node& node, std::string_view block) {
    const LoraParts& parts = model_.blocks().find(block)->second;
    const Tensor x = rewriter_.mapped(node.inputs[0]);
    const Tensor base = rewriter_.mapped(node.inputs[1]);
    const Tensor bias = node.inputs.size() > 2 ? rewriter_.mapped(node.inputs[2]) : Tensor();
    const Tensor down = weight(LoraModel::down_name(block));
    const Tensor up = lora_spread(weight(LoraModel::up_name(block)), parts, model_.lora().scale());
    const Tensor h = linear(drop(x), down);
    if (!model_.lora().dora) return linear_adapted(x, base, bias, h, up);
    const Tensor norm = dora_norm(base, product(up, down));
    return dora_scale(linear_adapted(x, base, {}, h, up), weight(LoraModel::magnitude_name(block)), norm, bias, parts);
  }

  const LoraModel& model_;
  const Program& from_;
  TraceUse use_;
  ProgramRewriter rewriter_;
  std::int64_t site_ = 0;
};

}  // namespace

Program LoraModel::adapted(Program program, const TraceUse& use) const { return Adapting(*this, program, use).run(); }

}  // namespace hone
