// Inserts adapters into a traced program by rewriting its linear layers, so model families need no code for adapters.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/error.h"
#include "model/lora.h"
#include "ops/add/add.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/scale/scale.h"

namespace hone {
namespace {

// The inputs of embedding, linear and linear_logprobs, the operations whose weight may have an adapter: the operand and
// the weight. The indices are the same in all three.
constexpr std::size_t kOperandInput = LinearIn::x;
constexpr std::size_t kWeightInput = LinearIn::weight;
static_assert(EmbeddingIn::tokens == kOperandInput && EmbeddingIn::weight == kWeightInput);
static_assert(LinearLogprobsIn::x == kOperandInput && LinearLogprobsIn::weight == kWeightInput);

// Rewrites one program.
class Adapting {
 public:
  Adapting(const LoraModel& model, const Program& from, const TraceUse& use)
      : model_(model), from_(from), use_(use), rewriter_(from) {
    // Dropout sites of the adapters are numbered after those of the model.
    for (const Node& node : from.nodes()) {
      if (node.op->name() == "dropout") site_ = std::max(site_, node.attributes.as<DropoutAttributes>().site + 1);
    }
    // Weights that are trained in full are replaced by their copies in all uses.
    for (const SavedModule& saved : model_.saved()) {
      const ValueId id = from_.find(Role::kWeight, saved.block);
      if (id == kNoValue || saved.use != SavedModule::Use::kEverywhere) continue;
      const Tensor copy = weight(saved.copy);
      rewriter_.map(id, saved.parts.count == 0 ? copy : lora_bias(copy, rewriter_.mapped(id), saved.parts));
    }
  }

  Program run() {
    for (const Node& node : from_.nodes()) {
      rewriter_.program().set_scope(node.scope);
      rewriter_.program().set_phase(node.phase);
      const std::string_view op = node.op->name();
      const std::string_view name =
          node.inputs.size() > kWeightInput ? weight_name(node.inputs[kWeightInput]) : std::string_view();
      if (op == "embedding" && name == LoraModel::kEmbedding) {
        rewriter_.map(node.outputs[0], look_up(node));
      } else if ((op == "linear" || op == "linear_logprobs") && name == model_.head()) {
        adapt_head(node);
      } else if (op == "linear" && model_.blocks().contains(name)) {
        rewriter_.map(node.outputs[0], adapt(node, name));
      } else {
        rewriter_.replay(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  Program& program() { return rewriter_.program(); }

  Tensor weight(const std::string& name) {
    for (const WeightSpec& spec : model_.weights()) {
      if (spec.name != name) continue;
      return program().weight(name, spec.traced_type(), use_.trainable, spec.dtype.has_value());
    }
    throw Defect(text_of("the adapter has no weight ", name));
  }

  [[nodiscard]] std::string_view weight_name(ValueId id) const {
    if (id == kNoValue || from_.value(id).role != Role::kWeight) return {};
    return from_.value(id).name;
  }

  // The weight of a node, or the trained copy that replaces it for this use.
  Tensor weight_of(const Node& node, SavedModule::Use use) {
    for (const SavedModule& saved : model_.saved()) {
      if (saved.use == use && saved.block == weight_name(node.inputs[kWeightInput])) return weight(saved.copy);
    }
    return rewriter_.mapped(node.inputs[kWeightInput]);
  }

  // Embedding lookup with an adapter. PEFT applies no dropout here.
  Tensor look_up(const Node& node) {
    const Tensor tokens = rewriter_.mapped(node.inputs[kOperandInput]);
    const Tensor base = embedding(tokens, weight_of(node, SavedModule::Use::kLookup));
    if (!model_.adapts_embedding()) return base;
    const Tensor h = embedding(tokens, weight(LoraModel::kEmbeddingDown));
    return base + scale(linear(h, weight(LoraModel::kEmbeddingUp)), model_.lora().scale());
  }

  // Replaces x and W of the head with the concatenations [x | h] and [W | up]. The logits then come from a single
  // operation, as without an adapter, so rollouts and training compute identical log-probabilities.
  void adapt_head(const Node& node) {
    const Tensor x = rewriter_.mapped(node.inputs[kOperandInput]);
    const Tensor base = rewriter_.mapped(node.inputs[kWeightInput]);
    Tensor head = weight_of(node, SavedModule::Use::kHead);
    const auto block = model_.blocks().find(model_.head());
    if (block != model_.blocks().end()) {
      const Tensor h = linear(drop(x), weight(LoraModel::down_name(block->first)));
      const Tensor up = lora_spread(weight(LoraModel::up_name(block->first)), block->second, model_.lora().scale());
      rewriter_.map(node.inputs[kOperandInput], join_columns(x, h));
      head = join_columns(head, up);
    }
    rewriter_.map(node.inputs[kWeightInput], head);
    rewriter_.replay(node);
    rewriter_.map(node.inputs[kOperandInput], x);
    rewriter_.map(node.inputs[kWeightInput], base);
  }

  Tensor drop(Tensor x) {
    const double probability = model_.lora().dropout;
    if (!use_.dropout || probability == 0) return x;
    const ValueId known = program().find(Role::kInput, kDropoutInput);
    const Tensor draw =
        known != kNoValue ? program().tensor(known) : program().input(kDropoutInput, {DType::kI32, {kDropoutDraw}});
    return dropout(x, draw, {.probability = probability, .site = site_++});
  }

  // A linear layer with an adapter: W x + bias + scale B A drop(x), with DoRA scaled to the magnitudes.
  Tensor adapt(const Node& node, std::string_view block) {
    const LoraParts& parts = model_.blocks().find(block)->second;
    const Tensor x = rewriter_.mapped(node.inputs[kOperandInput]);
    const Tensor base = rewriter_.mapped(node.inputs[kWeightInput]);
    const Tensor bias = node.inputs.size() > LinearIn::bias ? rewriter_.mapped(node.inputs[LinearIn::bias]) : Tensor();
    const Tensor down = weight(LoraModel::down_name(block));
    const Tensor up = lora_spread(weight(LoraModel::up_name(block)), parts, model_.lora().scale());
    const Tensor dropped = drop(x);
    const Tensor h = linear(dropped, down);
    if (!model_.lora().dora) return linear_adapted(x, base, bias, h, up);
    const Tensor magnitude = weight(LoraModel::magnitude_name(block));
    const Tensor norm = dora_norm(base, product(up, down));
    if (dropped.id() == x.id()) return dora_scale(linear_adapted(x, base, {}, h, up), magnitude, norm, bias, parts);
    // DoRA with dropout, as in PEFT: W x + bias + (m / |W + BA| (W + BA) - W) d, where d is x after dropout.
    const Tensor rest = x + scale(dropped, -1.0);
    return linear(rest, base, bias) + dora_scale(linear_adapted(dropped, base, {}, h, up), magnitude, norm, {}, parts);
  }

  const LoraModel& model_;
  const Program& from_;
  TraceUse use_;
  ProgramRewriter rewriter_;
  std::int64_t site_ = 0;  // next dropout site
};

}  // namespace

Program LoraModel::adapted(Program program, const TraceUse& use) const {
  return use.adapter ? Adapting(*this, program, use).run() : std::move(program);
}

}  // namespace hone
