#include <algorithm>
#include <cstdio>

#include "backend/device_option.h"
#include "cli/bench/child_bench.h"
#include "cli/bench/kind.h"
#include "cli/bench/machine.h"
#include "cli/bench/page.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"

namespace hone {
namespace {

struct AllOptions {
  std::string model;
  std::vector<std::string> only;
  std::vector<std::int64_t> processes;
  double seconds = 1;
  DeviceChoice device = DeviceChoice::kAutomatic;
  std::string output_dir = "runs/bench";

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("All benchmarks");
    v("model", model, "Known shape for training, decoding and kernels; unset: qwen2.5-0.5b, on a CPU quickstart");
    v("only", only,
      "Benchmarks to run, by name; empty: all but serve, which needs a server; on a single GPU no collectives");
    v("processes", processes,
      "Numbers of processes for scaling, the largest of them for collectives; those above the number of GPUs are left "
      "out; empty: 1, 2, 4 and so on up to the GPUs there are, on a CPU 1 and 2",
      within(1, 1024));
    v("seconds", seconds, "Seconds of each measurement", above(0));
    v("device", device, kDeviceHelp);
    v("output_dir", output_dir, "Folder for bench.html and bench.json");
  }
};

using Arguments = std::vector<std::string>;

// Numbers of processes that this machine has devices for. Throws Error if it has them for none that the options name.
std::vector<std::int64_t> possible_processes(const AllOptions& options, std::int64_t gpus) {
  if (options.processes.empty()) return process_counts(gpus);
  std::vector<std::int64_t> counts = options.processes;
  if (gpus > 0) std::erase_if(counts, [&](std::int64_t count) { return count > gpus; });
  if (counts.empty()) throw Error("processes", text_of("this machine has ", gpus, " GPUs, fewer than each number"));
  return counts;
}

// Returns the benchmarks with their arguments. gpus: 0 for the CPU, on which the shapes are small.
std::vector<Arguments> benchmarks(const AllOptions& options, std::int64_t gpus) {
  const bool cpu = gpus == 0;
  const std::string model = !options.model.empty() ? options.model : cpu ? "quickstart" : "qwen2.5-0.5b";
  const std::string length = cpu ? "128" : "1024";
  const std::string seconds = text_of(options.seconds);
  const std::string device = cpu ? "cpu" : "cuda";
  const std::vector<std::int64_t> processes = possible_processes(options, gpus);
  std::string list;
  for (const std::int64_t count : processes) list += text_of(list.empty() ? "" : ",", count);
  const std::string most = text_of(std::max<std::int64_t>(*std::ranges::max_element(processes), 2));
  const Arguments step{"--model", model, "--seq_len", length, "--batch_size", cpu ? "8" : "4", "--device", device};
  const auto with = [](Arguments first, const Arguments& more) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
  };
  std::vector<Arguments> all{
      {"matmul", "--seconds", seconds, "--device", device},
      with({"kernels", "--seconds", text_of(options.seconds / 10)}, step),
      with({"train", "--seconds", seconds, "--warmup_seconds", seconds}, step),
      with({"grpo", "--model", model, "--steps", "3", "--warmup_steps", "1", "--device", device},
           cpu ? Arguments{"--per_device_train_batch_size", "4", "--num_generations", "4", "--prompt_len", "16",
                           "--gradient_accumulation_steps", "2", "--mean_completion_len", "16",
                           "--max_completion_length", "32"}
               : Arguments{}),
      {"decode", "--model", model, "--contexts", cpu ? "128" : "1024", "--streams", cpu ? "1,8" : "1,8,64", "--steps",
       "64", "--device", device},
      with({"grouped_gemm", "--seconds", seconds, "--device", device},
           cpu ? Arguments{"--shapes", "64x8", "--hidden_size", "256", "--intermediate_size", "176"} : Arguments{}),
      with({"latent_attention", "--seconds", seconds, "--device", device},
           cpu ? Arguments{"--streams", "1", "--contexts", "128", "--heads", "16"} : Arguments{}),
      {"tokenizer", "--seconds", seconds},
      {"data", "--seconds", seconds},
      with({"scaling", "--processes", list, "--seconds", seconds, "--warmup_seconds", seconds}, step),
  };
  if (gpus != 1)
    all.push_back({"collectives", "--num_processes", most, "--mebibytes", cpu ? "1,16" : "16,256", "--device", device});
  return all;
}

std::vector<Arguments> chosen(const AllOptions& options, std::int64_t gpus) {
  std::vector<Arguments> all = benchmarks(options, gpus);
  if (options.only.empty()) return all;
  std::vector<Arguments> some;
  for (const std::string& name : options.only) {
    const auto found = std::ranges::find(all, name, [](const Arguments& each) { return each[0]; });
    if (found == all.end()) {
      std::string names;
      for (const Arguments& each : all) names += text_of(names.empty() ? "" : ", ", each[0]);
      throw Error("only", text_of("saw ", shown(std::string_view(name))), "expected " + names);
    }
    some.push_back(*found);
  }
  return some;
}

int all_bench(AllOptions& options, const OptionInput&, const std::string&) {
  ensure_writable_folder(options.output_dir, "output_dir");
  const Device& device = open_device(options.device);
  BenchPage page{.machine = describe_machine(device), .parts = {}};
  Json everything = Json::array();
  const TemporaryFolder scratch(std::filesystem::temp_directory_path(), "hone-bench");
  int failed = 0;
  for (const Arguments& each : chosen(options, gpus_for(options.device))) {
    const std::string command = "hone bench " + join(each, " ");
    std::printf("\n%s\n", command.c_str());
    BenchPart part{.name = each[0], .command = command, .rows = Json::array(), .failure = {}};
    try {
      part.rows = run_child_bench(each, scratch.path());
    } catch (const Error& error) {
      part.failure = error.what();
      ++failed;
    }
    for (const Json& row : part.rows) everything.push_back(row);
    page.parts.push_back(std::move(part));
  }
  const std::filesystem::path folder = options.output_dir;
  write_file(folder / "bench.html", bench_page(page));
  Json machine = Json::object();
  for (const auto& [name, value] : page.machine) machine[name] = value;
  write_json(folder / "bench.json", {{"machine", std::move(machine)}, {"rows", std::move(everything)}});
  std::printf("\nbench.html and bench.json are in %s\n", options.output_dir.c_str());
  if (failed > 0) throw Error("hone bench all", text_of(failed, " benchmarks failed"), "their messages are above");
  return 0;
}

}  // namespace

BenchKind bench_all() {
  return bench_kind(
      "all", "all but serve, on one GPU no collectives, on shapes that suit the device, into a page about the machine",
      all_bench);
}

}  // namespace hone
