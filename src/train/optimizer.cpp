#include "train/optimizer.h"

#include <cmath>
#include <string>

#include "compile/compiler.h"
#include "core/error.h"
#include "model/stage_model.h"
#include "model/tensor_parallel_model.h"
#include "model/weight_layout.h"
#include "model/weights.h"
#include "ops/gradient_norm/gradient_norm.h"
#include "ops/guard/guard.h"
#include "ops/stages/stages.h"
#include "train/registry.h"

namespace hone {
namespace {

constexpr const char* kBad = "nonfinite";

std::string state_name(const std::string& weight, std::string_view which) { return weight + "." + std::string(which); }

// A trainable weight and its index among the weights of the model.
struct Trained {
  const WeightSpec& spec;
  NamedType weight;
  std::int64_t index;
};

std::vector<Trained> trained_weights(const Model& model, DType dtype) {
  std::vector<Trained> trained;
  const std::vector<NamedType> types = weight_types(model, dtype);
  for (std::size_t i = 0; i < types.size(); ++i) {
    const WeightSpec& spec = model.weights()[i];
    if (spec.trainable) trained.push_back({spec, types[i], static_cast<std::int64_t>(i)});
  }
  return trained;
}

Placement placement_of(const NamedType& weight, const OptimizerOptions& options) {
  return options.paged && weight.type.elements() >= kMinPagedElements ? Placement::kHost : Placement::kDevice;
}

// Initialises the f32 master weights from the current bf16 weights.
void take_masters(Workspace& workspace, const Model& model, const OptimizerOptions& options) {
  const UpdateShards shards(model, options, options.ranks);
  const DType dtype = model_dtype(model, workspace.store(kWeightStore));
  const TensorStore& weights = workspace.store(kWeightStore);
  for (const auto& [spec, weight, index] : trained_weights(model, dtype)) {
    if (!has_masters(weight.type.dtype, options)) continue;
    const std::vector<std::byte> narrow = weights.download(weight.name);
    std::vector<float> wide(narrow.size() / sizeof(BFloat16));
    const auto* values = reinterpret_cast<const BFloat16*>(narrow.data());
    for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<float>(values[i]);
    const RowRange rows = shards.rows_of(static_cast<std::size_t>(index), options.rank);
    const std::int64_t row = row_elements(spec);
    const std::int64_t first = options.divided_weights ? 0 : rows.first;
    const auto held =
        std::span(wide).subspan(static_cast<std::size_t>(first * row), static_cast<std::size_t>(rows.count * row));
    const std::string name = state_name(weight.name, "master");
    for (const StoreSpec& store : workspace.stores()) {
      if (store.role != Role::kState || !workspace.store(store.name).contains(name)) continue;
      workspace.store(store.name).upload(name, std::as_bytes(held));
    }
  }
}

std::unique_ptr<Workspace> workspace_of(const Model& model, const TensorStore& weights,
                                        const std::shared_ptr<Arena>& arena, const OptimizerOptions& options) {
  auto workspace = std::make_unique<Workspace>(arena);
  workspace->add_weights(kWeightStore, weights.tensors());
  add_update(*workspace, model, model_dtype(model, weights), options);
  workspace->provide(kWeightStore, weights.view());
  workspace->allocate(arena->device());
  return workspace;
}

// GradientShare::parts of a rank's weight.
std::int64_t parts_of(const WeightSpec& spec, const OptimizerOptions& options) {
  if (!is_divided(spec)) return 0;
  return (options.in_tensor_group ? GradientShare::kTensorPart : 0) |
         (options.expert_ranks > 1 && spec.kind == WeightKind::expert ? GradientShare::kExpertPart : 0);
}

Tensor norm_of(std::span<const GradientShare> gradients, const OptimizerOptions& options) {
  // The sums over the data group add the parts of an expert group too, which is within it.
  const bool of_experts = options.expert_ranks > 1 && !options.divided_gradients;
  if (options.divided_gradients || options.in_tensor_group || of_experts) {
    return divided_gradient_norm(
        gradients, {.data = options.divided_gradients, .tensor = options.in_tensor_group, .experts = of_experts});
  }
  std::vector<Tensor> whole;
  for (const GradientShare& each : gradients) whole.push_back(each.rows);
  return gradient_norm(whole);
}

}  // namespace

Program trace_update(const Model& model, DType dtype, const OptimizerOptions& options) {
  HONE_ASSERT(!options.overwrites || (options.ranks == 1 && options.expert_ranks == 1), "a divided update");
  // Bind every trained weight with its gradient and states.
  Program program;
  program.set_phase(Phase::kUpdate);
  const Tensor hyper = program.input("hyper", {DType::kF32, {kAdamwHypers}});
  const std::vector<Trained> trained = trained_weights(model, dtype);
  const UpdateShards shards(model, options, options.ranks);
  std::vector<UpdatedWeight> tensors;
  std::vector<GradientShare> gradients;  // what the norm is of
  for (const auto& [spec, weight, index] : trained) {
    UpdatedWeight each;
    const RowRange rows = shards.rows_of(static_cast<std::size_t>(index), options.rank);
    const auto held = [&](const Type& type, bool divided) {
      return divided ? type_of_rows(type, weight.type, rows) : type;
    };
    each.gradient =
        program.gradient(weight.name, held(gradient_type(weight.type, options.gradients), options.divided_gradients));
    if (rows.count > 0) each.weight = program.weight(weight.name, held(weight.type, options.divided_weights));
    for (const NamedType& state : states_of(spec, weight.type, options)) {
      if (rows.count == 0) continue;
      each.states.push_back(program.state(state_name(weight.name, state.name),
                                          type_of_rows(state.type, weight.type, rows), placement_of(weight, options)));
    }
    const WeightUpdateRule* own = update_rule_registry().find(spec.kind);
    const bool counts = model.stage() == nullptr || model.stage()->counts(spec.name);
    if (counts && (own == nullptr || own->has_gradient())) {
      const std::int64_t first = options.divided_gradients ? rows.first * row_elements(spec) : 0;
      gradients.push_back({each.gradient, first, weight.type.elements(), parts_of(spec, options)});
    }
    tensors.push_back(each);
  }
  // The norm of all gradients decides clipping, and whether any weight is updated at all: guard() sets the flag if the
  // norm is not finite, and the updates then leave the weights unchanged.
  const Tensor own_norm = norm_of(gradients, options);
  const Tensor norm = model.stage() != nullptr ? norm_of_stages(own_norm) : own_norm;
  const Tensor bad = guard(norm, program.state(kBad, {DType::kI32, {1}}));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [spec, weight, index] = trained[i];
    const RowRange rows = shards.rows_of(static_cast<std::size_t>(index), options.rank);
    if (rows.count == 0) continue;
    const Scope scope(program, spec.name);
    const bool is_whole = rows.count == spec.shape[0];
    const auto stream = static_cast<std::int64_t>(whole_index(model, spec.name));  // the same on all ranks
    append_update(spec, tensors[i], {.norm = norm, .hyper = hyper, .bad = bad}, options, stream,
                  is_whole ? 0 : rows.first * row_elements(spec), is_whole ? 0 : rows.count * row_elements(spec));
  }
  program.output("grad_norm", norm);
  program.output("bad", bad);
  return program;
}

void add_update(Workspace& workspace, const Model& model, DType dtype, const OptimizerOptions& options) {
  workspace.add(kUpdateProgram, Compiler({.dtype = dtype}).update(trace_update(model, dtype, options)),
                {.states = {.name = kOptimizerStore, .saved_as = "optimizer."}});
}

Optimizer::Optimizer(Workspace& workspace, const Model& model, const OptimizerOptions& options)
    : workspace_(&workspace),
      attributes_(options.adamw),
      shards_(model, options, options.ranks),
      divided_gradients_(options.divided_gradients),
      divided_weights_(options.divided_weights),
      overwrites_(!overwritten_gradients(model, options).empty()) {
  HONE_ASSERT(!overwrites_ || gradients().contains(kAccumulatedFlag), "no loss program overwrites gradients");
  take_masters(workspace, model, options);
}

Optimizer::Optimizer(const Model& model, const TensorStore& weights, const std::shared_ptr<Arena>& arena,
                     const OptimizerOptions& options)
    : Optimizer(workspace_of(model, weights, arena, options), model, options) {}

Optimizer::Optimizer(std::unique_ptr<Workspace> own, const Model& model, const OptimizerOptions& options)
    : Optimizer(*own, model, options) {
  own_ = std::move(own);
}

Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer::~Optimizer() = default;

const TensorStore& Optimizer::gradients() const { return workspace_->store(kGradientStore); }
const Executable& Optimizer::executable() const { return workspace_->executable(kUpdateProgram); }
void Optimizer::set_observer(NodeObserver* observer) { workspace_->executable(kUpdateProgram).set_observer(observer); }

void Optimizer::join(Collective& job, bool programs_sum) {
  job_ = &job;
  programs_sum_ = programs_sum || divided_gradients_;
  if (divided_weights_) return;
  const TensorStore& weights = workspace_->store(kWeightStore);
  gathered_ = shards_.gathered(weights);
  if (current_expert_collective() != nullptr) {
    join_experts();
  } else if (weights.bytes() > 0) {
    job.broadcast(weights_begin(), weights.bytes(), 0);
  }
  weights.device().synchronize();
  check_job();
}

void Optimizer::join_experts() {
  const TensorStore& weights = workspace_->store(kWeightStore);
  Collective* const same = current_same_experts_collective();
  const std::vector<WeightSpec>& specs = shards_.model().weights();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    Collective* const ranks = shards_.is_expert(i) ? same : job_;
    if (ranks != nullptr) ranks->broadcast(weights.data(specs[i].name), weights.type(specs[i].name).bytes(), 0);
  }
  if (same != nullptr) gathered_experts_ = shards_.gathered(weights, true);
}

void Optimizer::check_job() {
  if (job_ != nullptr) job_->check();
  check_operations();
}

std::byte* Optimizer::weights_begin() const {
  const TensorStore& weights = workspace_->store(kWeightStore);
  return weights.data(weights.tensors().front().name);
}

std::map<std::string, HeldRows> Optimizer::held_rows() const {
  std::map<std::string, HeldRows> held;
  const std::vector<WeightSpec>& specs = shards_.model().weights();
  for (std::size_t i = 0; i < specs.size() && shards_.ranks() > 1; ++i) {
    const RowRange rows = shards_.rows_of(i, job_->rank());
    if (rows.count > 0) held.emplace(specs[i].name, HeldRows{rows.first, rows.count});
  }
  return held;
}

void Optimizer::set_accumulated(bool accumulated) {
  const float flag = accumulated ? 1 : 0;
  if (overwrites_) workspace_->store(kGradientStore).upload(kAccumulatedFlag, std::as_bytes(std::span(&flag, 1)));
}

void Optimizer::clear_unwritten() {
  if (!overwrites_) return;
  float flag = 0;
  gradients().download(kAccumulatedFlag, 0, std::as_writable_bytes(std::span(&flag, 1)));
  if (flag != 0) return;
  discard();
  set_accumulated(true);
}

void Optimizer::sum_gradients() {
  if (job_ == nullptr || programs_sum_) return;
  HONE_ASSERT(current_expert_collective() == nullptr, "programs sum the gradients of divided experts");
  clear_unwritten();
  // Neighbours of the same dtype are summed together, with the zeros between them.
  const TensorStore& store = gradients();
  const std::vector<NamedType>& tensors = store.tensors();
  for (std::size_t i = 0; i < tensors.size();) {
    const DType dtype = tensors[i].type.dtype;
    std::byte* const begin = store.data(tensors[i].name);
    std::size_t bytes = 0;
    for (; i < tensors.size() && tensors[i].type.dtype == dtype; ++i) bytes += align_up(tensors[i].type.bytes());
    if (is_floating(dtype)) job_->all_reduce(begin, dtype, bytes / size_of(dtype));
  }
}

void Optimizer::discard() { workspace_->store(kGradientStore).fill_zero(); }

UpdateResult Optimizer::update(double learning_rate, double max_grad_norm) {
  const auto t = static_cast<double>(steps_ + 1);
  std::vector<float> hyper(kAdamwHypers, 0.0f);
  const auto set = [&](AdamwHyper which, double value) {
    hyper[static_cast<std::size_t>(which)] = static_cast<float>(value);
  };
  set(AdamwHyper::kLearningRate, learning_rate);
  set(AdamwHyper::kCorrection1, 1.0 / (1.0 - std::pow(attributes_.beta1, t)));
  set(AdamwHyper::kCorrection2, 1.0 / std::sqrt(1.0 - std::pow(attributes_.beta2, t)));
  set(AdamwHyper::kMaxGradNorm, max_grad_norm);
  set(AdamwHyper::kStep, t);
  clear_unwritten();
  Executable& executable = workspace_->executable(kUpdateProgram);
  executable.set<float>("hyper", hyper);
  executable.run();
  set_accumulated(false);
  if (shards_.ranks() > 1) {
    HONE_ASSERT(job_ != nullptr && job_->size() == shards_.ranks(), "an update of ", shards_.ranks(), " ranks");
    for (const std::vector<ByteRange>& parts : gathered_) job_->all_gather(weights_begin(), parts);
    for (const std::vector<ByteRange>& parts : gathered_experts_) {
      current_same_experts_collective()->all_gather(weights_begin(), parts);
    }
    if (!divided_gradients_) discard();  // each rank has cleared the gradients of its share only
  }
  float norm = 0;
  std::int32_t bad = 0;
  executable.get<float>("grad_norm", {&norm, 1});
  executable.get<std::int32_t>("bad", {&bad, 1});
  check_job();
  if (bad == 0) ++steps_;
  return {norm, bad == 0};
}

void Optimizer::clear_guard() {
  const std::int32_t clear = 0;
  workspace_->store(kOptimizerStore).upload(kBad, std::as_bytes(std::span(&clear, 1)));
}

}  // namespace hone
