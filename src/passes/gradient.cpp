#include "passes/gradient.h"

#include <ranges>

#include "core/error.h"
#include "ops/add/add.h"
#include "ops/fill/fill.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"

namespace hone {
namespace {

// Builds the backward pass of one program. Gradients that reach the same value are added up.
class Backward final : public GradientBuilder {
 public:
  Backward(Program& program, std::span<const Tensor> wanted, GradientAccumulation sums,
           const OverwrittenGradients& overwritten)
      : program_(program),
        sums_(sums),
        overwritten_(overwritten),
        needed_(program.values().size(), false),
        gradients_(program.values().size(), kNoValue) {
    // A value needs a gradient if it is wanted, a trainable weight, or computed from such a value.
    for (const Tensor& tensor : wanted) needed_[index(tensor.id())] = true;
    for (std::size_t i = 0; i < needed_.size(); ++i) {
      const Value& value = program.values()[i];
      if (value.role == Role::kWeight && value.trainable) needed_[i] = true;
    }
    for (const Node& node : program.nodes()) {
      bool any = false;
      for (const ValueId id : node.inputs) any = any || (id != kNoValue && needed_[index(id)]);
      for (const ValueId id : node.outputs) needed_[index(id)] = needed_[index(id)] || any;
    }
  }

  void seed(const GradientSeed& seed) {
    HONE_ASSERT(seed.value.type() == seed.gradient.type(), to_text(seed.value.type()), " has a gradient ",
                to_text(seed.gradient.type()));
    contribute(seed.value.id(), seed.gradient);
  }

  // Appends the backward pass of a node if a gradient reached its outputs and an input needs one.
  void run(const Node& node) {
    bool arrived = false;
    for (const ValueId id : node.outputs) arrived = arrived || gradients_[index(id)] != kNoValue;
    bool wanted = false;
    for (const ValueId id : node.inputs) wanted = wanted || (id != kNoValue && needed_[index(id)]);
    if (!arrived || !wanted) return;
    node_ = &node;
    program_.set_scope(node.scope);
    node.op->gradient(*this, node);
  }

  // Throws Defect unless a node writes each gradient that is overwritten: it would keep what the step before has left.
  void expect_written() const {
    for (const std::string& name : overwritten_) {
      const ValueId id = program_.find(Role::kWeight, name);
      HONE_ASSERT(id != kNoValue && !must_overwrite(id), "no node writes the gradient of ", name);
    }
  }

  [[nodiscard]] Tensor gradient_of(ValueId id) { return program_.tensor(gradients_[index(id)]); }

  Program& program() override { return program_; }
  Tensor input(std::size_t i) override {
    return i < node_->inputs.size() ? program_.tensor(node_->inputs[i]) : Tensor();
  }
  Tensor output(std::size_t i) override { return program_.tensor(node_->outputs.at(i)); }
  Tensor output_gradient(std::size_t i) override { return gradient_of(node_->outputs.at(i)); }
  bool needs(std::size_t i) override {
    return i < node_->inputs.size() && node_->inputs[i] != kNoValue && needed_[index(node_->inputs[i])];
  }
  void add(std::size_t i, Tensor gradient) override {
    const ValueId id = node_->inputs.at(i);
    HONE_ASSERT(program_.value(id).role != Role::kWeight, "weight ", program_.value(id).name,
                " must use accumulator()");
    contribute(id, gradient);
  }
  Tensor accumulator(std::size_t i) override {
    const ValueId id = node_->inputs.at(i);
    const Value& weight = program_.value(id);
    if (weight.role != Role::kWeight)
      return fill(program_, {accumulator_of(weight.type.dtype), weight.type.shape}, 0.0);
    if (gradients_[index(id)] == kNoValue) {
      gradients_[index(id)] = program_.gradient(weight.name, gradient_type(weight.type, sums_)).id();
    }
    return gradient_of(id);
  }
  void set_accumulator(std::size_t i, Tensor updated) override {
    const ValueId id = node_->inputs.at(i);
    if (program_.value(id).role != Role::kWeight) return contribute(id, updated);
    HONE_ASSERT(!must_overwrite(id) || flagged_ == id, "the gradient of ", program_.value(id).name,
                " is overwritten, but ", node_->op->name(), " adds to it first");
    gradients_[index(id)] = updated.id();
  }
  Tensor accumulated(std::size_t i) override {
    const ValueId id = node_->inputs.at(i);
    if (!must_overwrite(id)) return {};
    flagged_ = id;
    const ValueId flag = program_.find(Role::kGradient, kAccumulatedFlag);
    return flag != kNoValue ? program_.tensor(flag) : program_.gradient(kAccumulatedFlag, {DType::kF32, {1}});
  }

 private:
  static std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }

  // Returns true if this is a weight whose gradient is overwritten, and no node has written it so far.
  [[nodiscard]] bool must_overwrite(ValueId id) const {
    const Value& value = program_.value(id);
    const ValueId gradient = gradients_[index(id)];
    return value.role == Role::kWeight && overwritten_.contains(value.name) &&
           (gradient == kNoValue || program_.value(gradient).role == Role::kGradient);
  }

  void contribute(ValueId id, Tensor gradient) {
    ValueId& slot = gradients_[index(id)];
    slot = slot == kNoValue ? gradient.id() : hone::add(program_.tensor(slot), gradient).id();
  }

  Program& program_;
  GradientAccumulation sums_;
  const OverwrittenGradients& overwritten_;
  ValueId flagged_ = kNoValue;      // the weight for whose gradient a node has last got the flag
  const Node* node_ = nullptr;      // the node whose backward pass is being appended
  std::vector<bool> needed_;        // [values of the forward program]
  std::vector<ValueId> gradients_;  // [values of the forward program]; kNoValue: no gradient so far
};

}  // namespace

Type gradient_type(const Type& weight, GradientAccumulation sums) {
  const bool narrow = sums == GradientAccumulation::kAsWeights && weight.shape.size() > 1;
  return {narrow ? weight.dtype : accumulator_of(weight.dtype), weight.shape};
}

std::vector<Tensor> append_gradients(Program& program, std::span<const GradientSeed> seeds,
                                     std::span<const Tensor> wanted, GradientAccumulation sums,
                                     const OverwrittenGradients& overwritten) {
  program.set_phase(Phase::kBackward);
  Backward backward(program, wanted, sums, overwritten);
  const std::vector<Node> forward = program.nodes();  // a copy, because the list grows during the loop
  for (const GradientSeed& seed : seeds) backward.seed(seed);
  for (const Node& node : std::views::reverse(forward)) backward.run(node);
  backward.expect_written();
  program.set_scope({});
  program.set_phase(Phase::kForward);
  std::vector<Tensor> gradients;
  for (const Tensor& tensor : wanted) gradients.push_back(backward.gradient_of(tensor.id()));
  return gradients;
}

}  // namespace hone
