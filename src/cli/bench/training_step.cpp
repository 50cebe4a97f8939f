#include "cli/bench/training_step.h"

#include <algorithm>

#include "cli/bench/models.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/random.h"
#include "model/registry.h"
#include "model/weights.h"
#include "ops/registry.h"
#include "train/language_run.h"
#include "train/loss_program.h"
#include "train/memory_fit.h"
#include "train/optimizer.h"
#include "train/setup.h"
#include "train/whole_weights.h"

namespace hone {
std::unique_ptr<Model> open_shape(const StepOptions& options) {
  const std::string text =
      options.model.ends_with(".json") ? read_file(options.model) : bench_model_config(options.model);
  Json config = parse_json(text, options.model);
  if (options.layers > 0) config["num_hidden_layers"] = options.layers;
  std::unique_ptr<Model> model = family_registry().create(config);
  // Rotary positions beyond the trained ones are computed like all others, so the times are valid. Learned positions
  // have a table with a fixed number of rows.
  const ModelShape& shape = model->shape();
  if (shape.learned_positions) check_positions(shape, options.seq_len, "seq_len");
  if (options.seq_len > shape.max_position_embeddings) {
    log_once(text_of("seq_len is ", options.seq_len, ", but the model has ", shape.max_position_embeddings,
                     " positions (max_position_embeddings); the times are valid, but do not train it like this"));
  }
  return model;
}

std::vector<std::int64_t> document_lengths(const StepOptions& options) {
  const RandomStream random(1, "bench documents");
  const std::int64_t mean = options.document_len;
  std::vector<std::int64_t> lengths;
  for (std::int64_t sequence = 0; sequence < options.batch_size; ++sequence) {
    for (std::int64_t left = options.seq_len; left > 0; left -= lengths.back()) {
      const auto below = static_cast<std::uint64_t>(mean + 1);
      const auto length =
          mean == 0 ? left : (mean + 1) / 2 + static_cast<std::int64_t>(random.below(lengths.size(), below));
      lengths.push_back(std::min(length, left));
    }
  }
  return lengths;
}

HostBatch random_batch(const StepOptions& options, std::int64_t vocabulary) {
  const RandomStream random(1, "bench tokens");
  HostBatch batch;
  for (const std::int64_t length : document_lengths(options)) {
    for (std::int64_t t = 0; t < length; ++t) {
      const auto id = random.below(batch.tokens.size(), static_cast<std::uint64_t>(vocabulary));
      batch.tokens.push_back(static_cast<TokenId>(id));
      batch.positions.push_back(static_cast<std::int32_t>(t));
      if (t > 0) batch.targets.push_back(batch.tokens.back());
      batch.loss_weights.push_back(t + 1 < length ? 1.0f : 0.0f);
    }
    batch.targets.push_back(-1);
    batch.target_tokens += length - 1;
    batch.cu_seqlens.push_back(static_cast<std::int32_t>(batch.tokens.size()));
  }
  return batch;
}

TrainingOptions StepOptions::training() const {
  TrainingOptions training;
  training.gradient_checkpointing = gradient_checkpointing;
  training.activation_offloading = activation_offloading;
  training.optim = optim;
  training.gradient_dtype = gradient_dtype;
  training.device = device;
  training.fp8 = fp8;
  training.per_device_train_batch_size = batch_size;
  training.gradient_accumulation_steps = gradient_accumulation_steps;
  training.num_processes = num_processes;
  training.zero_stage = zero_stage;
  training.job_rank = rank;
  return training;
}

namespace {

Workspace trace_with(const StepOptions& options, const Model& model, const TrainingOptions& training) {
  register_operations();
  const DType dtype = options.weight_dtype();
  const std::int64_t rows = training.per_device_train_batch_size;
  StepOptions micro_batch = options;
  micro_batch.batch_size = rows;
  const auto sequences = static_cast<std::int64_t>(document_lengths(micro_batch).size());
  Workspace workspace = training_workspace(training, model, dtype);
  workspace.add(kTrainingProgram,
                trace_training(model, {.capacity = {fp8_capacity(training.fp8, rows * options.seq_len), sequences},
                                       .compile = compile_options(training, model, dtype, workspace)}),
                training_use());
  add_quantization(workspace, training_use());
  if (training.sums_in_programs()) add_summing_programs(workspace, training_use(), {});
  return workspace;
}

// Allocates the workspace on the device and fills the weights, or this rank's rows of them, with random values.
Workspace with_weights(Workspace workspace, const Model& model, const OptimizerOptions& optimizer, DType dtype,
                       Device& device) {
  if (optimizer.divided_weights) {
    TensorStore stored(device, stored_weights(model, dtype, optimizer));
    const UpdateShards shards(model, optimizer, optimizer.ranks);
    HeldWeights(shards, optimizer).fill_random(1, stored);
    workspace.provide(kWeightStore, std::move(stored));
  } else {
    workspace.provide(kWeightStore, random_weights(model, 1, dtype, device));
  }
  workspace.allocate(device);
  return workspace;
}

}  // namespace

Workspace trace_step(const StepOptions& options, const Model& model) {
  return trace_with(options, model, options.training());
}

void check_step_fits(const StepOptions& options, const Model& model, const Workspace& workspace) {
  check_fits(options.training(), options.weight_dtype(), open_device(options.device), workspace.memory().total(),
             {[&](const TrainingOptions& training) { return trace_with(options, model, training).memory().total(); }});
}

TrainingStep::TrainingStep(const Model& model, Workspace workspace, const OptimizerOptions& optimizer, DType dtype,
                           Device& device, Collective* collective)
    : device_(device),
      collective_(collective),
      workspace_(with_weights(std::move(workspace), model, optimizer, dtype, device)),
      optimizer_(workspace_, model, optimizer) {
  if (collective != nullptr) optimizer_.join(*collective, true);
}

double TrainingStep::weight_of(std::span<const HostBatch> batches) const {
  std::int64_t targets = 0;
  for (const HostBatch& batch : batches) targets += batch.target_tokens;
  const int ranks = collective_ != nullptr ? collective_->size() : 1;
  return 1.0 / static_cast<double>(std::max<std::int64_t>(targets * ranks, 1));
}

double TrainingStep::run(std::span<const HostBatch> batches) {
  if (workspace_.has_program(kQuantizationProgram)) workspace_.executable(kQuantizationProgram).run();
  LossLaunches launches({workspace_, kTrainingProgram}, batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const bool sums = i + 1 == batches.size() && workspace_.has_program(kSummingProgram);
    if (sums) launches.continue_with({workspace_, kSummingProgram});
    launches.launch(batches[i], weight_of(batches));
  }
  optimizer_.sum_gradients();
  optimizer_.update(1e-5, 1.0);
  return launches.sums().loss;
}

void TrainingStep::run_observed(std::span<const HostBatch> batches, NodeObserver& observer, const ProgramDone& done) {
  const SizedExecutables programs(workspace_, kTrainingProgram);
  if (workspace_.has_program(kQuantizationProgram)) {
    Executable& quantization = workspace_.executable(kQuantizationProgram);
    quantization.set_observer(&observer);
    quantization.run();
    device_.synchronize();
    quantization.set_observer(nullptr);
    done(quantization, {});
  }
  LossLaunches launches(programs, batches.size());
  for (const HostBatch& batch : batches) {
    Executable& training = programs.holding(batch.token_count());
    training.set_observer(&observer);
    launches.launch(batch, weight_of(batches));
    device_.synchronize();
    training.set_observer(nullptr);
    done(training, batch);
  }
  optimizer_.set_observer(&observer);
  optimizer_.update(1e-5, 1.0);
  optimizer_.set_observer(nullptr);
  device_.synchronize();
  done(optimizer_.executable(), {});
}

void TrainingStep::run_profiled(std::span<const HostBatch> batches, Timeline& timeline) {
  timeline.asynchronous = device_.kind() != DeviceKind::kCpu;
  timeline.held = device_.allocated_bytes() - std::min(device_.allocated_bytes(), workspace_.memory().arena);
  device_.synchronize();
  NodeClock clock;
  const double begin = host_seconds();
  double host = 0;  // seconds that recording the profile itself took; subtracted from the timeline
  double end = begin;
  run_observed(batches, clock, [&](const Executable& executable, const HostBatch& batch) {
    const double now = host_seconds();
    end = now - host;
    timeline.add_run(timeline.add_program(executable, batch), executable.program(), end, clock, host);
    host += host_seconds() - now;
  });
  timeline.steps.push_back({begin, end - begin});
}

}  // namespace hone
