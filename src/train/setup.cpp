#include "train/setup.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "core/yaml.h"
#include "data/dataset.h"
#include "data/mixture.h"
#include "model/loaded_model.h"
#include "model/stage_model.h"
#include "model/weights.h"
#include "train/benchmark_memory.h"
#include "train/memory_fit.h"
#include "train/optim_args.h"

namespace hone {
namespace {

Recompute recompute_policy(Recomputation choice) {
  switch (choice) {
    case Recomputation::kOff:
      return Recompute::kNone;
    case Recomputation::kOn:
      return Recompute::kLayers;
    case Recomputation::kAutomatic:
      break;
  }
  return Recompute::kAutomatic;
}

bool has_mixture(const DatasetOptions& options) { return options.dataset_mixture.kind != YamlValue::Kind::kNull; }

MixtureSources open_mixture(const DatasetOptions& options, SampleBy sample_by) {
  const Mixture mixture = read_mixture(options.dataset_mixture, "dataset_mixture");
  return hone::open_mixture(mixture, {.sample_by = sample_by}, [&](const MixtureDataset& dataset) {
    return open_dataset({.name = dataset.id, .config = dataset.config},
                        {.sample_by = sample_by, .split = dataset.split});
  });
}

MomentFormat moments_of(OptimizerType type) {
  switch (type) {
    case OptimizerType::kAdamwBf16:
      return MomentFormat::kAsWeights;
    case OptimizerType::kAdamw8bit:
    case OptimizerType::kPagedAdamw8bit:
      return MomentFormat::kInt8;
    case OptimizerType::kAdamw:
    case OptimizerType::kPagedAdamw:
    case OptimizerType::kMuon:
    case OptimizerType::kSgd:
      break;
  }
  return MomentFormat::kWide;
}

UpdateRule rule_of(OptimizerType type) {
  if (type == OptimizerType::kMuon) return UpdateRule::kMuon;
  return type == OptimizerType::kSgd ? UpdateRule::kSgd : UpdateRule::kAdamw;
}

GradientAccumulation gradient_sums(const TrainingOptions& options) {
  return options.gradient_dtype == GradientType::kBfloat16 ? GradientAccumulation::kAsWeights
                                                           : GradientAccumulation::kWide;
}

}  // namespace

Source open_training_data(const DatasetOptions& options, SampleBy sample_by) {
  if (has_mixture(options)) return open_mixture(options, sample_by).train;
  return open_dataset({.name = options.dataset_name, .config = options.dataset_config},
                      {.sample_by = sample_by, .split = options.dataset_train_split});
}

Source open_eval_data(const DatasetOptions& options, const TrainingOptions& training, SampleBy sample_by) {
  const bool own = options.eval_dataset_name.empty();
  const auto fail = [&](std::string_view data, std::string_view fix) {
    const bool by_strategy = training.eval_strategy != Interval::kNo;
    throw Error(by_strategy              ? "eval_strategy"
                : training.eval_on_start ? "eval_on_start"
                                         : "do_eval",
                text_of("is ", by_strategy ? name_of(training.eval_strategy) : "true", ", but ", data), fix);
  };
  if (own && has_mixture(options)) {
    if (std::optional<Source> test = open_mixture(options, sample_by).test) return std::move(*test);
    fail("dataset_mixture has no test_split_size to hold rows out", "set it, or eval_dataset_name");
  }
  const DatasetName data{.name = own ? options.dataset_name : options.eval_dataset_name,
                         .config = own ? options.dataset_config : std::string()};
  const bool has_splits = names_splits(data);
  if (own && !has_splits) {
    fail(text_of(data.name, " has no split '", options.dataset_test_split, "' to evaluate on"),
         "set eval_dataset_name; hone pretrain may hold out test_split_size");
  }
  return open_dataset(data, {.sample_by = sample_by, .split = has_splits ? options.dataset_test_split : "train"});
}

Tokenizer tokenizer_of(const ModelOptions& options) {
  const std::string& own = options.tokenizer_name_or_path;
  return load_tokenizer(own.empty() ? resolve_model(options.model_name_or_path, options.model_revision)
                                    : resolve_model(own));
}

TokenCache token_cache_of(const DatasetOptions& options, const TrainingOptions& training) {
  return options.token_cache ? TokenCache(token_cache_folder(), !training.dry_run) : TokenCache();
}

std::string run_title(std::string_view command, const TrainingOptions& options) {
  return options.run_name.empty() ? std::string(command) : text_of(command, " ", options.run_name);
}

DeviceKind device_kind(const TrainingOptions& options) {
  return options.plan.device ? DeviceKind::kCuda : open_device(options.device).kind();
}

CompileOptions compile_options(const TrainingOptions& options, const Model& model, DType dtype, std::size_t held) {
  const DeviceKind device = device_kind(options);
  const bool is_host = device == DeviceKind::kCpu;
  if (options.activation_offloading && is_host) log_once("activation_offloading has no effect: the run is on the host");
  return {.dtype = dtype,
          .device = device,
          .recompute = recompute_policy(options.gradient_checkpointing),
          .activation_budget = activation_budget(options, held),
          .gradients = gradient_sums(options),
          .overwritten = overwritten_gradients(model, optimizer_options(options)),
          .offload = options.activation_offloading && !is_host};
}

Workspace training_workspace(const TrainingOptions& options, const Model& model, DType dtype) {
  if (dtype != DType::kBf16 && options.optim == OptimizerType::kAdamwBf16) {
    throw Error("optim", text_of("adamw_bf16 is for weights of bfloat16, these are ", name_of(dtype)),
                "set torch_dtype: bfloat16, or optim: adamw_torch");
  }
  if (dtype != DType::kBf16 && options.gradient_dtype == GradientType::kBfloat16) {
    throw Error("gradient_dtype", text_of("bfloat16 is for weights of bfloat16, these are ", name_of(dtype)),
                "set torch_dtype: bfloat16, or remove gradient_dtype");
  }
  Workspace workspace(device_kind(options));
  const OptimizerOptions optimizer = optimizer_options(options);
  workspace.add_weights(kWeightStore, stored_weights(model, dtype, optimizer));
  add_update(workspace, model, dtype, optimizer);
  return workspace;
}

CompileOptions compile_options(const TrainingOptions& options, const Model& model, DType dtype,
                               const Workspace& workspace, std::size_t held) {
  std::size_t stores = options.shards() > 1 ? 0 : workspace.store_bytes();
  // Ranks whose shares differ by some bytes must compile the same programs.
  constexpr int kAskedRanks = 8;
  if (options.shards() > 1) {
    const Mesh mesh = options.mesh();
    for (int rank = 0; rank < std::min(mesh.data_size(), kAskedRanks); ++rank) {
      TrainingOptions other = options;
      other.job_rank = mesh.rank_of(mesh.stage(), rank, 0);
      stores = std::max(stores, training_workspace(other, model, dtype).store_bytes());
    }
  }
  CompileOptions compile = compile_options(options, model, dtype, stores + held);
  compile.fp8_weights = fp8_weights_of(options.fp8, of_all_stages(model), dtype,
                                       !options.plan.device && compile.device == DeviceKind::kCuda);
  compile.shares = shares_of_programs(model, optimizer_options(options));
  if (model.stage() != nullptr) compile.stage = model.stage()->cut();
  // Copies of divided weights would be whole, those of a stage in each of its slots. With one micro-batch a step
  // nothing is saved.
  compile.holds_fp8_weights = compile.fp8_weights != nullptr && options.gradient_accumulation_steps > 1 &&
                              !options.divides_weights() && compile.stage == nullptr;
  return compile;
}

bool wants_benchmarks(const TrainingOptions& options) {
  return std::ranges::any_of(options.benchmarks,
                             [](const std::string& name) { return name != "none" && yaml_boolean(name) != false; });
}

std::size_t benchmark_bytes_held(const TrainingOptions& options, const Model& model, DType dtype) {
  return wants_benchmarks(options) ? benchmark_bytes(model, dtype, open_device(options.device).kind()) : 0;
}

ExpertGradients expert_gradients(const TrainingOptions& options, const Model& model) {
  ExpertGradients experts{.names = {}, .are_summed = options.mesh().same_experts_size() > 1};
  for (const WeightSpec& spec : model.weights()) {
    if (options.expert_parallel_size > 1 && spec.kind == WeightKind::expert) experts.names.insert(spec.name);
  }
  return experts;
}

OptimizerOptions optimizer_options(const TrainingOptions& options) {
  const bool paged = options.optim == OptimizerType::kPagedAdamw8bit || options.optim == OptimizerType::kPagedAdamw;
  // A part of a weight or of the layers keeps gradients that are cleared.
  const Mesh mesh = options.mesh();
  const bool is_whole =
      options.shards() == 1 && mesh.tensor_size() == 1 && mesh.pipeline_size() == 1 && mesh.expert_size() == 1;
  OptimizerOptions optimizer{.rule = rule_of(options.optim),
                             .adamw = {.beta1 = options.adam_beta1,
                                       .beta2 = options.adam_beta2,
                                       .epsilon = options.adam_epsilon,
                                       .weight_decay = options.weight_decay,
                                       .seed = options.seed},
                             .moments = moments_of(options.optim),
                             .paged = paged && device_kind(options) != DeviceKind::kCpu,
                             .gradients = gradient_sums(options),
                             .overwrites = is_whole,
                             .ranks = static_cast<int>(options.shards()),
                             .rank = options.shards() > 1 ? options.mesh().data_rank() : 0,
                             .divided_gradients = options.divides_gradients(),
                             .divided_weights = options.divides_weights(),
                             .in_tensor_group = options.tensor_parallel_size > 1,
                             .expert_ranks = static_cast<int>(options.expert_parallel_size)};
  apply_optim_args(options.optim_args, name_of(options.optim), optimizer);
  return optimizer;
}

}  // namespace hone
