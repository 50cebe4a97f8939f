#include <algorithm>
#include <cstdio>
#include <set>

#include "cli/bench/kind.h"
#include "cli/bench/results.h"
#include "cli/bench/training_step.h"
#include "cli/command.h"
#include "cli/profile/limits.h"
#include "cli/profile/one_op.h"
#include "cli/profile/timing.h"
#include "core/error.h"
#include "core/log.h"
#include "train/loss_program.h"

namespace hone {
namespace {

struct KernelsOptions : StepOptions {
  std::vector<std::string> ops;
  double seconds = 0.3;
  std::string json;

  KernelsOptions() {
    model = "llama-3.1-8b";
    layers = 1;
    seq_len = 8192;
  }

  template <class Visitor>
  void fields(Visitor& v) {
    StepOptions::fields(v);
    v.group("Measurement");
    v("ops", ops, "Operations to measure, as prefixes of their names; empty: all");
    v("seconds", seconds, "Seconds of measurement per operation", above(0));
    v("json", json, "JSON file to write the results to");
  }
};

struct Measured {
  std::string op;
  std::string shapes;
  double milliseconds = 0;
  Work work;
  double of_possible = 0;  // fraction of the roofline, 0 to 1
};

bool is_wanted(const KernelsOptions& options, std::string_view op) {
  return options.ops.empty() ||
         std::ranges::any_of(options.ops, [&](const std::string& name) { return op.starts_with(name); });
}

// Text that is equal for two nodes if their kernels do the same work: operation, shapes and attributes.
std::string identity_of(const Program& program, const Node& node) {
  return text_of(node.op->name(), " ", shapes_of(program, node, node.inputs.size()), " ", node.attributes.to_text());
}

void print(const Measured& each, const FlopUnit& unit) {
  std::printf("%-30s %10.3f %9.1f %8.0f %11.1f%%  %s\n", each.op.c_str(), each.milliseconds,
              each.work.flops / each.milliseconds * 1e3 / unit.scale, each.work.bytes / each.milliseconds * 1e-6,
              100 * each.of_possible, each.shapes.c_str());
  std::fflush(stdout);
}

// Measures each distinct node of a program that the options select, and prints it.
void measure(const Program& program, const KernelsOptions& options, Device& device, const HostBatch& batch,
             const DeviceLimits& limits, std::vector<Measured>& results) {
  std::set<std::string> seen;
  for (const Node& node : program.nodes()) {
    if (node.op->is_view() || !is_wanted(options, node.op->name())) continue;
    // The attributes of an update contain the key of its random stream, which differs between weights of equal shape
    // and does not matter for the time.
    const bool update = node.phase == Phase::kUpdate;
    const std::string identity =
        update ? text_of(node.op->name(), shapes_of(program, node)) : identity_of(program, node);
    if (!seen.insert(identity).second) continue;
    try {
      const IsolatedOp one(program, node, device, batch, 0);
      Executable executable = one.executable();
      const double seconds =
          seconds_per_run(device, [&] { executable.run(); }, options.seconds) / static_cast<double>(one.copies());
      const Work work = work_of(program, node, batch);
      results.push_back({.op = std::string(node.op->name()),
                         .shapes = shapes_of(program, node),
                         .milliseconds = seconds * 1e3,
                         .work = work,
                         .of_possible = limits.reached(work.flops, work.bytes, seconds)});
      print(results.back(), flop_unit(limits.flops_per_second));
    } catch (const Error& error) {
      log_warning(text_of(node.op->name(), " was not measured: ", error.what()));
    }
  }
}

int kernels_bench(KernelsOptions& options, const OptionInput& input, const std::string& command) {
  options.complete(input);
  const std::unique_ptr<Model> model = open_shape(options);
  Device& device = open_device(options.device);
  set_gemm_tuning(device, options.gemm.tuning());
  const HostBatch batch = random_batch(options, model->shape().vocab_size);
  // Results in a file are compared with limits measured in the same run, not with stored ones.
  const bool anew = input.was_set("seconds") || !options.json.empty();
  const DeviceLimits limits = device_limits(device, options.weight_dtype(), options.seconds, anew);
  const FlopUnit unit = flop_unit(limits.flops_per_second);
  std::printf("%s on %s, %lld x %lld tokens; limits: copy %.0f GB/s, GEMM %.1f %s\n\n", options.model.c_str(),
              device.name().c_str(), static_cast<long long>(options.batch_size),
              static_cast<long long>(options.seq_len), limits.copy_bytes_per_second * 1e-9,
              limits.flops_per_second / unit.scale, unit.name);
  std::printf("%-30s %10s %9s %8s %12s  %s\n", "operation", "ms", unit.name, "GB/s", "of roofline", "inputs");
  std::vector<Measured> results;
  const Workspace workspace = trace_step(options, *model);
  measure(workspace.program(kTrainingProgram), options, device, batch, limits, results);
  measure(workspace.program(kUpdateProgram), options, device, batch, limits, results);
  if (results.empty()) throw Error("ops", "matches no operation of the step");
  if (options.json.empty()) return 0;
  std::vector<ResultRow> rows{
      {"copy", "device to device", limits.copy_bytes_per_second * 1e-9, "GB/s"},
      {"matmul", "the large product that stands for the limit", limits.flops_per_second * 1e-12, "TFLOP/s"}};
  for (const Measured& each : results) {
    rows.push_back({"kernel " + each.op, each.shapes, each.milliseconds * 1e3, "us"});
    rows.push_back({"kernel " + each.op, each.shapes, 100 * each.of_possible, "% of possible"});
  }
  write_results(options.json, rows, device.name(), command);
  return 0;
}

}  // namespace

BenchKind bench_kernels() {
  return bench_kind("kernels", "each operation of a training step in isolation, compared with the device's roofline",
                    kernels_bench);
}

}  // namespace hone
