#include <cstdio>
#include <functional>
#include <optional>
#include <set>

#include "backend/device_model.h"
#include "cli/bench/kind.h"
#include "cli/bench/results.h"
#include "cli/bench/training_step.h"
#include "cli/command.h"
#include "cli/profile/one_op.h"
#include "cli/profile/timing.h"
#include "core/error.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "train/loss_program.h"

namespace hone {
namespace {

struct MatmulOptions {
  std::vector<std::int64_t> sizes;
  std::vector<std::string> dtypes = {"bfloat16", "float32"};
  std::string model;
  std::int64_t tokens = 8192;
  DeviceChoice device = DeviceChoice::kAutomatic;
  GemmOptions gemm;
  double seconds = 0.5;
  double peak_tflops = 0;
  std::string json;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("GEMMs");
    v("sizes", sizes, "Sizes n of n x n x n GEMMs; empty: 1024 to 16384, on the CPU 256 to 1024", within(1, 65536));
    v("dtypes", dtypes, "Dtypes of operands and results: bfloat16, float32");
    v("model", model,
      "Measure the GEMMs of a training step of this model instead, in the first dtype: a known shape or a config.json");
    v("tokens", tokens, "Tokens per micro-batch with --model", at_least(1));
    v("device", device, kDeviceHelp);
    gemm.fields(v);
    v.group("Measurement");
    v("seconds", seconds, "Seconds of measurement per GEMM", above(0));
    v("peak_tflops", peak_tflops, "Peak TFLOP/s of the device in bfloat16; 0: from the data sheet, if hone knows it",
      at_least(0));
    v("json", json, "JSON file to write the results to");
  }
};

DType dtype_of(const std::string& name) {
  if (name == "bfloat16" || name == "bf16") return DType::kBf16;
  if (name == "float32" || name == "f32") return DType::kF32;
  throw Error("dtypes", text_of("expected bfloat16 or float32, saw '", name, "'"));
}

struct Rates {
  double first = 0;                // FLOP/s with the algorithm that the library chooses
  std::optional<double> measured;  // FLOP/s with the tuned algorithm; absent on a CPU
};

// Label of a node's GEMM, m x n x k: "8192 x 4608 x 3584, forward".
std::string label_of(const Program& program, const Node& node) {
  const Shape& a = program.value(node.inputs[LinearFactorsIn::a]).type.shape;
  const Shape& b = program.value(node.inputs[LinearFactorsIn::b]).type.shape;
  if (node.op->name() == "linear") return text_of(a[0].size, " x ", b[0].size, " x ", a[1].size, ", forward");
  if (node.op->name() == "linear_input_gradient") {
    return text_of(a[0].size, " x ", b[1].size, " x ", a[1].size, ", input gradient");
  }
  if (node.op->name() == "linear_weight_gradient") {
    return text_of(a[1].size, " x ", b[1].size, " x ", a[0].size, ", weight gradient");
  }
  return text_of(node.op->name(), " ", shapes_of(program, node, 2));
}

Rates rates_of(const Program& program, const Node& node, Device& device, const MatmulOptions& options) {
  const IsolatedOp one(program, node, device, {}, 0);
  const double flops = work_of(program, node, {}).flops * static_cast<double>(one.copies());
  const auto prepared = [&](const GemmTuning& tuning) {
    set_gemm_tuning(device, tuning);
    Executable executable = one.executable();
    for (int i = 0; i < 2; ++i) executable.run();  // the second run is recorded, with the algorithm chosen here
    return executable;
  };
  Executable first = prepared({.mode = GemmTuning::Mode::kOff, .table = {}});
  if (device.kind() == DeviceKind::kCpu) {
    return {flops / seconds_per_run(device, [&] { first.run(); }, options.seconds), std::nullopt};
  }
  Executable tuned = prepared(options.gemm.tuning());
  const std::function<void()> both[] = {[&] { first.run(); }, [&] { tuned.run(); }};
  const std::vector<double> seconds = seconds_in_turns(device, both, options.seconds / 2);
  return {flops / seconds[0], flops / seconds[1]};
}

// Measures GEMMs and prints a row for each.
class Table {
 public:
  Table(Device& device, const MatmulOptions& options) : device_(device), options_(options) {
    const DeviceRate promised = built_in_model(device.name()).peak_flops;
    peak_ = options.peak_tflops > 0 ? options.peak_tflops * 1e12 : promised.per_second;
    if (device.kind() == DeviceKind::kCpu) unit_ = {"GFLOP/s", 1e9};
    std::printf("GEMMs on %s, %s\n\n%-44s %-8s %9s %9s %7s %8s\n", device.name().c_str(), unit_.name, "m x n x k",
                "dtype", "default", "tuned", "gain", "of peak");
  }

  void add(const Program& program, const Node& node, const std::string& label) {
    const Rates rates = rates_of(program, node, device_, options_);
    const DType dtype = program.value(node.inputs[LinearFactorsIn::a]).type.dtype;
    const double best = rates.measured.value_or(rates.first);
    std::printf("%-44s %-8s %9.1f ", label.c_str(), std::string(name_of(dtype)).c_str(), rates.first / unit_.scale);
    if (rates.measured) {
      std::printf("%9.1f %6.1f%% ", *rates.measured / unit_.scale, 100 * (*rates.measured / rates.first - 1));
    } else {
      std::printf("%9s %7s ", "-", "-");
    }
    if (peak_ > 0 && dtype == DType::kBf16) {
      std::printf("%7.1f%%\n", 100 * best / peak_);
    } else {
      std::printf("%8s\n", "-");
    }
    std::fflush(stdout);
    const std::string shape = text_of(label, " ", name_of(dtype));
    rows_.push_back({"matmul", shape, rates.first / unit_.scale, text_of(unit_.name, ", library's choice")});
    if (rates.measured)
      rows_.push_back({"matmul", shape, *rates.measured / unit_.scale, text_of(unit_.name, ", tuned")});
  }

  [[nodiscard]] std::span<const ResultRow> rows() const { return rows_; }

 private:
  Device& device_;
  const MatmulOptions& options_;
  FlopUnit unit_;
  double peak_ = 0;  // FLOP/s
  std::vector<ResultRow> rows_;
};

void add_squares(Table& table, const MatmulOptions& options, bool host) {
  std::vector<std::int64_t> sizes = options.sizes;
  if (sizes.empty())
    sizes = host ? std::vector<std::int64_t>{256, 512, 1024} : std::vector<std::int64_t>{1024, 2048, 4096, 8192, 16384};
  for (const std::string& name : options.dtypes) {
    const DType dtype = dtype_of(name);
    for (const std::int64_t size : sizes) {
      Program program;
      (void)linear(program.input("x", {dtype, {size, size}}), program.weight("w", {dtype, {size, size}}));
      table.add(program, program.nodes()[0], text_of(size, " x ", size, " x ", size));
    }
  }
}

void add_model(Table& table, const MatmulOptions& options) {
  StepOptions step;
  step.model = options.model;
  step.layers = 1;
  step.seq_len = options.tokens;
  step.dtype = dtype_of(options.dtypes.at(0)) == DType::kF32 ? TorchDtype::kFloat32 : TorchDtype::kBfloat16;
  step.device = options.device;
  step.complete({});
  const std::unique_ptr<Model> model = open_shape(step);
  const Workspace workspace = trace_step(step, *model);
  const Program& training = workspace.program(kTrainingProgram);
  std::set<std::string> seen;
  for (const Node& node : training.nodes()) {
    if (node.op->category() != OpCategory::kGemm) continue;
    const std::string label = label_of(training, node);
    if (seen.insert(label).second) table.add(training, node, label);
  }
}

int matmul_bench(MatmulOptions& options, const OptionInput&, const std::string& command) {
  if (options.dtypes.empty()) throw Error("dtypes", "is empty");
  register_operations();
  Device& device = open_device(options.device);
  Table table(device, options);
  if (options.model.empty()) {
    add_squares(table, options, device.kind() == DeviceKind::kCpu);
  } else {
    add_model(table, options);
  }
  if (!options.json.empty()) {
    write_results(options.json, table.rows(), device.name(), command);
  }
  return 0;
}

}  // namespace

BenchKind bench_matmul() {
  return bench_kind("matmul", "GEMMs over sizes and dtypes, with and without tuning", matmul_bench);
}

}  // namespace hone
