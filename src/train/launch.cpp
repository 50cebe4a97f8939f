#include "train/launch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "model/expert_parallel_model.h"
#include "model/stage_model.h"
#include "model/tensor_parallel_model.h"
#include "system/process.h"
#include "train/accelerate.h"
#include "train/memory_fit.h"
#include "train/run_notes.h"
#include "train/setup.h"

namespace hone {
namespace {

AccelerateOptions launch_file(const TrainingOptions& options) {
  OptionInput ignored;  // check_options() has logged its notices
  return options.config_file.empty() ? AccelerateOptions{} : read_accelerate(options.config_file, ignored);
}

}  // namespace

std::int64_t processes_of(const TrainingOptions& options, const JobPlace& place) {
  const std::int64_t wanted = options.num_processes.value_or(launch_file(options).num_processes);
  if (!place.is_job()) return wanted;
  if (options.num_processes && wanted != place.size) {
    throw Error("num_processes", text_of("is ", wanted, ", but the launcher has started ", place.size, " processes"),
                "remove the key, or start as many");
  }
  return place.size;
}

void apply_launch_file(TrainingOptions& options, const OptionInput& input) {
  if (options.config_file.empty()) return;
  const AccelerateDivision division = division_of(launch_file(options), options.config_file);
  const auto set = [&](const char* key, auto& option, const auto& value) {
    if (!input.was_set(key)) option = value;
  };
  set("zero_stage", options.zero_stage, division.zero_stage);
  set("tensor_parallel_size", options.tensor_parallel_size, division.tensor_parallel_size);
  set("pipeline_parallel_size", options.pipeline_parallel_size, division.pipeline_parallel_size);
  set("context_parallel_size", options.context_parallel_size, division.context_parallel_size);
  set("sequence_parallel", options.sequence_parallel, division.sequence_parallel);
}

std::optional<std::string> layout_key_set(const TrainingOptions& options, const OptionInput& input) {
  struct Key {
    const char* name;
    bool differs;  // from its default
  };
  std::vector<Key> keys{{"zero_stage", options.zero_stage.value_or(0) > 0},
                        {"virtual_pipeline_parallel_size", options.virtual_pipeline_parallel_size > 1},
                        {"sequence_parallel", options.sequence_parallel}};
  for (const GroupSize& group : options.group_sizes()) keys.push_back({group.key, group.size > 1});
  const auto found = std::ranges::find_if(keys, [&](const Key& key) { return key.differs || input.was_set(key.name); });
  return found == keys.end() ? std::nullopt : std::optional<std::string>(found->name);
}

namespace {

// Throws Error unless the processes are a multiple of each size, and of those of groups within each other.
void check_sizes(const TrainingOptions& options) {
  const auto [pipeline, experts, context, tensor] = options.group_sizes();
  const std::vector<std::vector<GroupSize>> divided{
      {tensor}, {pipeline, tensor}, {experts, tensor, pipeline}, {context, tensor, pipeline}};
  for (const std::vector<GroupSize>& groups : divided) {
    std::int64_t together = 1;
    std::string with;
    for (const GroupSize& group : groups) {
      together *= group.size;
      if (&group == &groups[0] || group.size == 1) continue;
      with += text_of(with.empty() ? " with " : " and ", group.key, " ", group.size);
    }
    if (groups[0].size == 1 || options.processes() % together == 0) continue;
    throw Error(groups[0].key,
                text_of("is ", groups[0].size, with, ", which does not divide num_processes ", options.processes()),
                text_of("--num_processes ", (options.processes() + together - 1) / together * together));
  }
}

void check_benchmarks(const TrainingOptions& options) {
  if (!wants_benchmarks(options)) return;
  const auto refuse = [](std::string_view divides, const std::string& fix) {
    throw Error("benchmarks", text_of("need whole weights on the device, which ", divides, " divides"), fix);
  };
  for (const auto& [key, size, of_weights, of_tokens] : options.group_sizes()) {
    if (size > 1 && of_weights) refuse(key, text_of("--", key, " 1"));
  }
  if (options.divides_weights()) refuse("zero_stage 3", "--zero_stage 2");
}

void check_pipeline(const TrainingOptions& options) {
  const std::int64_t size = options.pipeline_parallel_size;
  if (size == 1 && options.virtual_pipeline_parallel_size > 1) {
    throw Error("virtual_pipeline_parallel_size",
                text_of("is ", options.virtual_pipeline_parallel_size, ", but pipeline_parallel_size is 1"),
                "a larger pipeline_parallel_size, or --virtual_pipeline_parallel_size 1");
  }
  if (size == 1) return;
  const auto refuse = [&](const std::string& reason, std::string_view fix) {
    throw Error("pipeline_parallel_size", text_of("is ", size, ", but ", reason), fix);
  };
  if (options.activation_offloading) {
    refuse("activation_offloading moves the activations of one micro-batch only", "--activation_offloading false");
  }
}

void check_sequence_parallel(const TrainingOptions& options) {
  if (!options.sequence_parallel || options.tensor_parallel_size > 1) return;
  throw Error("sequence_parallel", "divides tokens over a tensor group, but tensor_parallel_size is 1",
              "--tensor_parallel_size 2, or --sequence_parallel false");
}

}  // namespace

void check_mesh(const TrainingOptions& options) {
  check_sizes(options);
  check_benchmarks(options);
  check_pipeline(options);
  check_sequence_parallel(options);
  const std::int64_t size = options.tensor_parallel_size;
  if (size > 1 && options.optim == OptimizerType::kMuon) {
    throw Error("tensor_parallel_size", text_of("is ", size, ", but optim muon updates whole matrices"),
                "--optim adamw_torch");
  }
}

std::unique_ptr<Model> divided_model(const TrainingOptions& options, std::unique_ptr<Model> model) {
  if (options.divides_weights() && model->adapter() != nullptr) {
    throw Error("zero_stage", "3 divides trained weights, of which an adapter has few: the base would stay whole",
                "--zero_stage 2");
  }
  const Mesh mesh = options.mesh();
  if (mesh.tensor_size() > 1) {
    model = std::make_unique<TensorParallelModel>(std::move(model), mesh.tensor_rank(), mesh.tensor_size(),
                                                  options.sequence_parallel);
  }
  if (mesh.expert_size() > 1) {
    model = std::make_unique<ExpertParallelModel>(std::move(model), mesh.expert_rank(), mesh.expert_size());
  }
  if (mesh.pipeline_size() == 1) return model;
  return std::make_unique<StageModel>(std::move(model), mesh.stage(), mesh.pipeline_size(),
                                      static_cast<int>(options.virtual_pipeline_parallel_size));
}

LocalRanks ranks_to_start(const TrainingOptions& options, const JobPlace& place) {
  if (place.is_job()) return {};
  const AccelerateOptions file = launch_file(options);
  const std::int64_t total = processes_of(options, place);
  if (total == 1) return {};
  LocalRanks ranks{.count = static_cast<int>(total), .first = 0, .total = static_cast<int>(total)};
  if (file.num_machines == 1) return ranks;
  if (total % file.num_machines != 0 || file.machine_rank >= file.num_machines || file.main_process_ip.empty()) {
    throw Error(options.config_file,
                text_of("num_processes ", total, ", num_machines ", file.num_machines, ", machine_rank ",
                        file.machine_rank, " and main_process_ip '", file.main_process_ip, "' do not fit together"),
                "each machine has as many processes, and main_process_ip is the address of machine 0");
  }
  ranks.count = static_cast<int>(total / file.num_machines);
  ranks.first = static_cast<int>(file.machine_rank) * ranks.count;
  ranks.address = file.main_process_ip;
  ranks.port = file.main_process_port > 0 ? static_cast<std::uint16_t>(file.main_process_port) : kDefaultMasterPort;
  ranks.key = environment_variable("HONE_JOB_KEY");
  return ranks;
}

namespace {

void agree_on_memory(const Job& job, TrainingOptions& options, const Device& device) {
  if (job.peers() == nullptr) return;
  // The processes of a machine share its memory; those on GPUs have one each.
  DeviceMemory there = memory_of(device);
  if (device.kind() == DeviceKind::kCpu) {
    there.available /= static_cast<std::size_t>(std::max(1, job.peers()->place().local_size));
  }
  std::array<double, 2> least{-static_cast<double>(there.total), -static_cast<double>(there.available)};
  job.maximum(least);
  options.agreed_memory = DeviceMemory{static_cast<std::size_t>(-least[0]), static_cast<std::size_t>(-least[1])};
}

}  // namespace

void agree(const Job& job, TrainingOptions& options, const std::string& options_json, const Device& device) {
  if (job.peers() == nullptr) return;
  const Peers& peers = *job.peers();
  const std::vector<std::string> all = job.peers()->gather(options_json);
  for (int r = 1; r < job.size(); ++r) {
    const std::string& other = all[static_cast<std::size_t>(r)];
    if (other == all[0]) continue;
    const std::string difference = changed_keys(parse_json(all[0], "rank 0"), parse_json(other, peers.name_of(r)));
    throw JobFailure(peers.name_of(r),
                     text_of("has another configuration than rank 0: ",
                             difference.empty() ? "keys that say where or how it runs" : difference),
                     "start all ranks with the same recipe and keys", !job.is_first());
  }
  agree_on_memory(job, options, device);
}

}  // namespace hone
