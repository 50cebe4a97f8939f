#include "planner/layout_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/strings.h"
#include "model/stage_model.h"
#include "model/weights.h"
#include "passes/layer.h"
#include "planner/sequences.h"
#include "train/launch.h"
#include "train/pipeline_schedule.h"
#include "train/setup.h"

namespace hone {
namespace {

// A rank's programs, and the model of which they are.
struct RankPrograms {
  std::unique_ptr<Model> model;
  Workspace workspace;
};

TrainingOptions with_layout(const LayoutProblem& problem, const Layout& layout, int stage) {
  TrainingOptions options = problem.options;
  apply(layout, options);
  options.job_rank = options.mesh().rank_of(stage, 0, 0);
  return options;
}

LanguageSizes sizes_of(const LayoutProblem& problem, const TrainingOptions& options, const Model* model) {
  LanguageSizes sizes{.model = model, .dtype = problem.dtype, .loss = problem.loss};
  sizes.steps = equal_steps(options.per_device_train_batch_size, options.gradient_accumulation_steps, problem.sequence);
  if (options.evaluates()) sizes.eval_steps = equal_steps(options.per_device_eval_batch_size, 1, problem.sequence);
  return sizes;
}

RankPrograms trace_rank(const LayoutProblem& problem, const TrainingOptions& options, std::int64_t layers) {
  std::unique_ptr<Model> model = divided_model(options, problem.model(layers));
  Workspace workspace = trace_run(sizes_of(problem, options, model.get()), options);
  return {std::move(model), std::move(workspace)};
}

// Adds the bytes of the trained weights of a model of a rank, each of which one rank of several updates.
void add_gathered(StepWork& work, const Model& model, DType dtype) {
  const bool divides_experts = work.mesh.expert_size() > 1;
  const std::vector<NamedType> types = weight_types(model, dtype);
  for (std::size_t i = 0; i < types.size(); ++i) {
    const WeightSpec& spec = model.weights()[i];
    if (!spec.trainable) continue;
    const bool is_expert = divides_experts && spec.kind == WeightKind::expert;
    (is_expert ? work.gathered_expert_bytes : work.gathered_bytes) += static_cast<double>(types[i].type.bytes());
  }
}

CostModel cost_model(const LayoutProblem& problem, const TrainingOptions& options, const Model* model) {
  const MicroBatchShape shape = training_shape(sizes_of(problem, options, model), options);
  const std::int64_t zero = options.zero_stage.value_or(0);
  StepWork work{.mesh = options.mesh(),
                .dtype = problem.dtype,
                .sequence = problem.sequence.tokens,
                .tokens = shape.capacities.back(),
                .micro_batches = micro_batches_of_step(options, problem.sequence.tokens)};
  if (options.shards() > 1 && (zero == 1 || zero == 2)) add_gathered(work, *model, problem.dtype);
  return CostModel(problem.device, work);
}

// Bytes of the gradients that the first and the last stage have both.
std::size_t shared_bytes(const RankPrograms& first) {
  std::size_t bytes = 0;
  for (const StoreSpec& store : first.workspace.stores()) {
    if (store.name != kGradientStore) continue;
    for (const NamedType& tensor : store.tensors) {
      if (std::ranges::count(first.model->stage()->shared(), tensor.name) > 0) bytes += tensor.type.bytes();
    }
  }
  return bytes;
}

LayoutPlan plan_pipeline(const LayoutProblem& problem, const Layout& layout) {
  std::vector<RankPrograms> stages;
  LayoutPlan plan{.layout = layout, .time = {}};
  for (int stage = 0; stage < static_cast<int>(layout.pipeline_parallel_size); ++stage) {
    stages.push_back(trace_rank(problem, with_layout(problem, layout, stage), problem.layers));
    plan.bytes = std::max(plan.bytes, stages.back().workspace.memory().total());
  }
  std::vector<PlannedStage> planned;
  planned.reserve(stages.size());
  for (const RankPrograms& stage : stages) planned.push_back({stage.model->stage(), &stage.workspace});
  plan.time = cost_model(problem, with_layout(problem, layout, 0), stages[0].model.get())
                  .step(planned, shared_bytes(stages[0]));
  return plan;
}

LayoutPlan plan_rank(const LayoutProblem& problem, const Layout& layout, std::int64_t layers) {
  const TrainingOptions options = with_layout(problem, layout, 0);
  const RankPrograms rank = trace_rank(problem, options, layers);
  return {.layout = layout,
          .time = cost_model(problem, options, rank.model.get()).step(rank.workspace),
          .bytes = rank.workspace.memory().total()};
}

// The plan of all layers of a model whose first `few` layers have the plan `base`, and one more `more`.
LayoutPlan grown(LayoutPlan base, const LayoutPlan& more, std::int64_t layers, std::int64_t few) {
  const auto times = static_cast<double>(layers - few);
  StepTime layer = more.time;
  layer.add(base.time, -1);
  base.time.add(layer, times);
  const double bytes = static_cast<double>(more.bytes) - static_cast<double>(base.bytes);
  base.bytes = static_cast<std::size_t>(std::max(static_cast<double>(base.bytes) + times * bytes, 0.0));
  return base;
}

LayoutPlan estimate_rank(const LayoutProblem& problem, const Layout& layout) {
  // With divided weights those of a layer are gathered while the layer before is computed, and gradients summed while
  // the next is, so that a layer more takes as much only from the third on.
  const std::int64_t few = problem.first_layers + (layout.zero_stage >= 2 ? 3 : 1);
  if (problem.layers <= few + 1) return plan_rank(problem, layout, problem.layers);
  return grown(plan_rank(problem, layout, few), plan_rank(problem, layout, few + 1), problem.layers, few);
}

// Returns the micro-batches that the chunks of the first stage have under way, each at most.
double slots_of_first(const Layout& layout) {
  const PipelineShape shape{.stages = static_cast<int>(layout.pipeline_parallel_size),
                            .chunks = static_cast<int>(layout.virtual_pipeline_parallel_size)};
  std::int64_t slots = 0;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) slots += most_under_way(shape, 0, chunk);
  return static_cast<double>(slots);
}

}  // namespace

std::int64_t first_layers(const Model& model) {
  std::map<std::int64_t, std::vector<std::string>> layers;  // the names and shapes of the weights of each
  for (const WeightSpec& spec : model.weights()) {
    const std::string_view layer = layer_of(spec.name);
    if (!is_in_layer(spec.name)) continue;
    std::string text = spec.name.substr(layer.size());
    for (const std::int64_t size : spec.shape) text += text_of(" ", size);
    layers[std::stoll(std::string(layer.substr(kLayerPrefix.size())))].push_back(std::move(text));
  }
  std::int64_t first = model.shape().num_hidden_layers - 1;
  while (first > 0 && layers[first - 1] == layers[first]) --first;
  return first;
}

LayoutPlan plan_layout(const LayoutProblem& problem, const Layout& layout) {
  return layout.pipeline_parallel_size > 1 ? plan_pipeline(problem, layout)
                                           : plan_rank(problem, layout, problem.layers);
}

const LayoutEstimator::Whole& LayoutEstimator::whole(const Layout& layout) {
  Layout key = layout;
  key.virtual_pipeline_parallel_size = 1;
  if (const auto found = wholes_.find(key); found != wholes_.end()) return found->second;
  LayoutProblem of_stage = problem_;
  of_stage.options.num_processes = problem_.options.processes() / layout.pipeline_parallel_size;
  Layout alone = key;
  alone.pipeline_parallel_size = 1;
  Whole whole{.plan = estimate_rank(of_stage, alone)};
  const TrainingOptions options = with_layout(of_stage, alone, 0);
  const std::unique_ptr<Model> model = divided_model(options, problem_.model(problem_.layers));
  whole.store_bytes = static_cast<double>(training_workspace(options, *model, problem_.dtype).store_bytes());
  whole.micro_batches = micro_batches_of_step(options, problem_.sequence.tokens);
  return wholes_.emplace(key, std::move(whole)).first->second;
}

// A stage has its share of the work, and waits while the pipeline fills and empties, with C chunks 1 / C of that time.
// The first one keeps the activations of as many micro-batches as there are stages, or of all if these are fewer, and
// with several chunks those of the slots of each.
LayoutPlan LayoutEstimator::estimate_stages(const Layout& layout) {
  const Whole& all = whole(layout);
  const auto stages = static_cast<double>(layout.pipeline_parallel_size);
  LayoutPlan plan{.layout = layout, .time = {}};
  plan.time.add(all.plan.time, 1 / stages);
  const auto chunks = static_cast<double>(layout.virtual_pipeline_parallel_size);
  const auto of_step = static_cast<double>(all.micro_batches);
  plan.time.bubble = plan.time.total() * (stages - 1) / of_step / chunks;
  // Bytes of a stage's layers.
  const double of_one = std::max(static_cast<double>(all.plan.bytes) - all.store_bytes, 0.0) / stages;
  double micro_batches = std::min(stages, of_step);
  if (layout.virtual_pipeline_parallel_size > 1) micro_batches = slots_of_first(layout) / chunks;
  plan.bytes = static_cast<std::size_t>(all.store_bytes / stages + of_one * micro_batches);
  return plan;
}

// Throws Error if the model refuses the groups, which it does whatever a micro-batch has.
void LayoutEstimator::check_stages(const Layout& layout) {
  Layout groups = layout;
  groups.per_device_train_batch_size = groups.gradient_accumulation_steps = 1;
  groups.gradient_checkpointing = Recomputation::kAutomatic;
  if (possible_.contains(groups)) return;
  (void)divided_model(with_layout(problem_, layout, 0), problem_.model(problem_.layers));
  possible_.insert(groups);
}

LayoutPlan LayoutEstimator::estimate(const Layout& layout) {
  if (layout.pipeline_parallel_size == 1) return estimate_rank(problem_, layout);
  check_stages(layout);
  return estimate_stages(layout);
}

}  // namespace hone
