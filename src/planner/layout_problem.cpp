#include "planner/layout_problem.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/strings.h"
#include "model/registry.h"
#include "planner/sequences.h"
#include "train/memory_fit.h"

namespace hone {
namespace {

// The processes that share what this one sees of a machine: those of the job that is planned, unless this is one of
// them, which has its part of the cores and has agreed on its memory.
std::int64_t sharers(const TrainingOptions& options) { return options.agreed_memory ? 1 : options.processes(); }

// The rates of the CPUs of a process.
DeviceModel host_model(const TrainingOptions& options) {
  DeviceModel model = built_in_model(DeviceKind::kCpu);
  model.name = "the host";
  const double cores = std::max(1.0, static_cast<double>(thread_count()) / static_cast<double>(sharers(options)));
  for (const auto rate : {&DeviceModel::f32_flops, &DeviceModel::bf16_flops, &DeviceModel::copy_bytes}) {
    (model.*rate).per_second *= cores;
  }
  if (model.step) {
    for (AttentionRate* const rate : {&model.step->attention_forward, &model.step->attention_backward}) {
      rate->flops *= cores;
    }
  }
  return model;
}

DeviceModel gpu_model(const std::string& name) {
  DeviceModel known = built_in_model(name);
  if (known.step) return known;
  DeviceModel like = like_known_gpu(known);
  log_once(text_of("hone knows no rates of steps on ", name, ": its times are those of ", like.name,
                   ", as its peak is to that one's"));
  like.name = name;
  return like;
}

// The model of a configuration with another number of layers.
std::unique_ptr<Model> with_layers(Json config, std::int64_t layers) {
  for (const char* key : {"n_layer", "num_hidden_layers"}) {
    if (config.contains(key)) config[key] = layers;
  }
  return family_registry().create(config);
}

// Describes a run of either command. prepare: settles what training computes, and attaches an adapter.
template <class Options, class Prepare>
LayoutProblem problem_of(const Options& options, const OptionInput& input, const ModelSketch& sketch,
                         const JobDevices& devices, BatchLimits sequence, Prepare prepare) {
  const auto shared = std::make_shared<const Options>(options);
  const auto places = std::make_shared<const OptionInput>(input);
  const Json config = sketch.model->config();
  LayoutProblem problem{.options = options,
                        .dtype = weight_dtype(options).value_or(sketch.dtype),
                        .sequence = sequence,
                        .layers = sketch.model->shape().num_hidden_layers};
  problem.model = [shared, config, prepare](std::int64_t layers) {
    return prepare(*shared, with_layers(config, layers));
  };
  problem.first_layers = first_layers(*sketch.model);
  problem.check = [shared, places](const TrainingOptions& changed) {
    Options all = *shared;
    static_cast<TrainingOptions&>(all) = changed;
    all.layout = LayoutChoice::kKeys;  // the candidate's values are no keys that exclude a search
    check_options(all, *places);
  };
  problem.recomputation_set = input.was_set("gradient_checkpointing") || input.was_set("activation_memory_gib");
  problem.unit = devices.unit > 0 ? devices.unit : options.processes();
  problem.device = devices.model;
  problem.available = devices.available;
  return problem;
}

}  // namespace

JobDevices job_devices(const TrainingOptions& options, const std::string& name) {
  if (!name.empty()) {
    const DeviceModel model = built_in_model(name);
    if (model.peak_flops.is_known()) return {gpu_model(name), device_memory(options).available};
    throw Error("device_name", text_of("no GPU of hone's table is called ", shown(std::string_view(name))),
                text_of("name ", join(devices_with_step_rates(), " or "), ", or set --device_memory alone"));
  }
  const std::size_t available = device_memory(options).available;
  if (options.plan.device) {
    DeviceModel model = like_known_gpu({});
    model.name = text_of("GPUs of ", format_bytes(options.plan.device->total), " with the rates of ", model.name);
    return {std::move(model), available};
  }
  const Device& device = open_device(options.device);
  if (device.kind() == DeviceKind::kCpu) {
    return {host_model(options), available / static_cast<std::size_t>(sharers(options))};
  }
  return {gpu_model(std::string(device.name())), available};
}

LayoutProblem layout_problem(const PretrainOptions& options, const OptionInput& input, const ModelSketch& sketch,
                             const JobDevices& devices) {
  check_positions(sketch.model->shape(), options.block_size, "block_size");
  return problem_of(options, input, sketch, devices, {options.block_size, documents_in(options.block_size)},
                    [](const PretrainOptions& keys, std::unique_ptr<Model> model) {
                      prepare_experts(*model, keys.experts, false, kPretrainBiasSpeed);
                      return model;
                    });
}

LayoutProblem layout_problem(const SftOptions& options, const OptionInput& input, const ModelSketch& sketch,
                             const JobDevices& devices) {
  const std::int64_t positions = sketch.model->shape().max_position_embeddings;
  const std::int64_t length = std::min(options.max_length.value_or(positions), positions);
  LayoutProblem problem =
      problem_of(options, input, sketch, devices, {length, options.packing ? documents_in(length) : 1},
                 [](const SftOptions& keys, std::unique_ptr<Model> model) {
                   prepare_experts(*model, keys.experts, keys.use_peft);
                   return with_adapter(std::move(model), keys, keys);
                 });
  problem.loss = options.loss_type;
  return problem;
}

}  // namespace hone
