#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "backend/device_model.h"
#include "backend/device_option.h"
#include "cli/bench/kind.h"
#include "cli/bench/results.h"
#include "cli/profile/timing.h"
#include "core/error.h"
#include "core/float8.h"
#include "core/random.h"
#include "core/yaml.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/normal_fill/normal_fill.h"
#include "ops/registry.h"
#include "ops/scaled_grouped_linear/scaled_grouped_linear.h"
#include "passes/gradient.h"
#include "program/executable.h"
#include "train/options.h"

namespace hone {

// The distribution of rows over experts.
enum class ExpertLoad : std::uint8_t { kBalanced, kRandom };
template <>
inline constexpr EnumTable kEnumTable<ExpertLoad>{.names = "balanced|random"};

namespace {

struct GroupedGemmOptions {
  std::vector<std::string> shapes = {"4096x64", "2048x32", "8192x64", "2048x16", "16384x64", "2048x8"};
  std::int64_t top_k = 6;
  std::int64_t hidden_size = 2048;
  std::int64_t intermediate_size = 1408;
  ExpertLoad load = ExpertLoad::kBalanced;
  bool fp8 = false;
  TorchDtype dtype = TorchDtype::kBfloat16;
  DeviceChoice device = DeviceChoice::kAutomatic;
  double seconds = 1;
  double peak_tflops = 0;
  std::string json;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Mixture");
    v("shapes", shapes, "Tokens x experts, such as 4096x64");
    v("top_k", top_k, "Experts per token", at_least(1));
    v("hidden_size", hidden_size, "Width of a token", at_least(1));
    v("intermediate_size", intermediate_size, "Width of an expert", at_least(1));
    v("load", load, "Rows of the experts: balanced, or random as a router that has learned nothing gives them");
    v("dtype", dtype, "Dtype of weights, rows and gradients");
    v("fp8", fp8,
      "Multiply in FP8, as fp8 of hone pretrain does; the time of the backward pass includes quantizing dy");
    v("device", device, kDeviceHelp);
    v.group("Measurement");
    v("seconds", seconds, "Seconds of measurement per shape", above(0));
    v("peak_tflops", peak_tflops, "Peak TFLOP/s of the device in bfloat16; 0: from the data sheet, if hone knows it",
      at_least(0));
    v("json", json, "JSON file to write the results to");
  }
};

struct MixtureShape {
  std::int64_t tokens, experts;
};

MixtureShape parse_shape(const std::string& text) {
  MixtureShape shape{};
  const std::size_t cross = text.find('x');
  const auto number = [&](std::string_view digits, std::int64_t most) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 1 || value > most) {
      throw Error("shapes", text_of("expected tokens x experts, such as 4096x64, saw ", shown(std::string_view(text))));
    }
    return value;
  };
  shape.tokens = number(std::string_view(text).substr(0, cross), 1 << 24);
  shape.experts = number(cross == std::string::npos ? "" : std::string_view(text).substr(cross + 1), 1 << 16);
  return shape;
}

// The first row of each expert, and the number of rows: [experts + 1].
std::vector<std::int32_t> first_rows(std::int64_t rows, std::int64_t experts, ExpertLoad load) {
  std::vector<std::int32_t> start(static_cast<std::size_t>(experts + 1), 0);
  const RandomStream random(1, "experts");
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto expert = load == ExpertLoad::kBalanced
                            ? row % experts
                            : static_cast<std::int64_t>(
                                  random.below(static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(experts)));
    ++start[static_cast<std::size_t>(expert) + 1];
  }
  for (std::size_t e = 1; e < start.size(); ++e) start[e] += start[e - 1];
  return start;
}

// The GEMMs of the experts of a layer: gate and up in one, and down; forward, and backward for rows and weights, as in
// the first micro-batch of a step: gradients of weights are overwritten, because kAccumulatedFlag stays 0. All other
// operands are random.
class MixtureGemms {
 public:
  MixtureGemms(const GroupedGemmOptions& options, const MixtureShape& shape, Device& device)
      : device_(device), arena_(std::make_shared<Arena>(device)) {
    const DType dtype = options.dtype == TorchDtype::kFloat32 ? DType::kF32 : DType::kBf16;
    const std::int64_t rows = shape.tokens * options.top_k;
    std::vector<GradientSeed> seeds;
    std::vector<Tensor> wanted;
    const auto add = [&](const std::string& name, std::int64_t outputs, std::int64_t inputs) {
      const Tensor x = traced_.input(name + ".x", {dtype, {rows, inputs}});
      const Tensor weight = traced_.weight(name + ".weight", {dtype, {shape.experts * outputs, inputs}});
      const Tensor start = traced_.input(name + ".start", {DType::kI32, {shape.experts + 1}});
      const GroupedLinearAttributes by_expert{.experts = shape.experts};
      const Tensor y =
          options.fp8 ? scaled_product(name, x, weight, start, by_expert) : grouped_linear(x, weight, start, by_expert);
      seeds.push_back({y, traced_.input(name + ".dy", y.type())});
      wanted.push_back(options.fp8 ? traced_.tensor(traced_.find(Role::kInput, name + ".x.e4m3")) : x);
    };
    add("gate_up", 2 * options.intermediate_size, options.hidden_size);
    add("down", options.hidden_size, options.intermediate_size);
    append_gradients(traced_, seeds, wanted, GradientAccumulation::kAsWeights, {"gate_up.weight", "down.weight"});
    std::vector<NamedType> types;
    for (const Value& value : traced_.values()) {
      if (value.producer < 0) types.push_back({operand_name(value), value.type});
    }
    operands_ = TensorStore(device, types);
    fill(types);
    const std::vector<std::int32_t> start = first_rows(rows, shape.experts, options.load);
    for (const char* name : {"gate_up.start", "down.start"}) operands_.upload(name, std::as_bytes(std::span(start)));
  }

  // Runs the forward or the backward GEMMs. This object must outlive the result.
  [[nodiscard]] Executable executable(Phase phase) const {
    Program program;
    std::map<std::string, Tensor> operands;  // those that several nodes read are declared once
    std::map<ValueId, Tensor> made;          // by nodes of the phase
    for (const Node& node : traced_.nodes()) {
      if (node.phase != phase) continue;
      std::vector<Tensor> inputs;
      for (const ValueId id : node.inputs) {
        if (id == kNoValue || made.contains(id)) {
          inputs.push_back(id == kNoValue ? Tensor() : made.at(id));
          continue;
        }
        const Value& value = traced_.value(id);
        Tensor& operand = operands[operand_name(value)];
        if (!operand) operand = program.weight(operand_name(value), value.type);
        inputs.push_back(operand);
      }
      const std::vector<Tensor> outputs = program.append(*node.op, node.attributes, inputs);
      for (std::size_t i = 0; i < outputs.size(); ++i) made[node.outputs[i]] = outputs[i];
      program.output(text_of("y", program.nodes().size()), outputs[0]);
    }
    return {program, arena_, {.weights = &operands_}};
  }

  [[nodiscard]] double flops(Phase phase) const {
    double flops = 0;
    for (const Node& node : traced_.nodes()) flops += node.phase == phase ? traced_.cost(node).flops : 0.0;
    return flops;
  }

 private:
  // The product of operands in e4m3, which stand next to those that they would be quantized from.
  Tensor scaled_product(const std::string& name, Tensor x, Tensor weight, Tensor start,
                        const GroupedLinearAttributes& by_expert) {
    const auto types_of = [](std::string_view op, const std::vector<std::optional<Type>>& types,
                             const Attributes& attributes) { return op_registry().get(op).infer(types, attributes); };
    const std::vector<Type> rows = types_of("quantize_experts", {x.type(), start.type()},
                                            QuantizeExpertsAttributes{.experts = by_expert.experts, .blocks = true});
    const std::vector<Type> matrix = types_of("quantize_weight", {weight.type()}, QuantizeWeightAttributes{});
    const auto operand = [&](const char* suffix, const Type& type) { return traced_.input(name + suffix, type); };
    const QuantizedRows from{.rows = operand(".x.e4m3", rows[QuantizeOut::rows]),
                             .row_scale = operand(".x.scale", rows[QuantizeOut::row_scale]),
                             .columns = operand(".x.columns", rows[QuantizeOut::columns]),
                             .column_scale = operand(".x.column_scale", rows[QuantizeOut::column_scale])};
    const QuantizedWeight by{operand(".weight.e4m3", matrix[QuantizeWeightOut::weight]),
                             operand(".weight.scale", matrix[QuantizeWeightOut::scale])};
    return scaled_grouped_linear(from, by, start, by_expert, {.weight = weight, .kept = by});
  }
  static std::string operand_name(const Value& value) {
    return value.role == Role::kGradient ? value.name + ".gradient" : value.name;
  }
  void fill(std::span<const NamedType> types) {
    constexpr double kDeviation = 0.05;
    Program program;
    for (const NamedType& each : types) {
      if (each.type.dtype == DType::kU8) fill_e4m3(each);
      if (!is_floating(each.type.dtype)) continue;
      (void)normal_fill(program.weight(each.name, each.type),
                        {.key = static_cast<std::int64_t>(RandomStream(1, each.name).key()),
                         .deviation = kDeviation,
                         .first = 0,
                         .count = each.type.elements()});
    }
    Executable(program, std::make_shared<Arena>(device_), {.weights = &operands_}).run();
    device_.synchronize();
  }

  // Normal numbers, as a block has them after it was divided by its scale.
  void fill_e4m3(const NamedType& operand) {
    constexpr std::size_t kPattern = 1 << 20;
    constexpr double kDeviation = 100;
    static const std::vector<std::uint8_t> pattern = [] {
      const RandomStream random(1, "e4m3");
      std::vector<std::uint8_t> bytes(kPattern);
      for (std::size_t i = 0; i < kPattern; ++i) {
        bytes[i] = e4m3_of(std::clamp(static_cast<float>(random.normal(i) * kDeviation), -kE4m3Max, kE4m3Max));
      }
      return bytes;
    }();
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(operand.type.elements()));
    for (std::size_t at = 0; at < bytes.size(); at += kPattern) {
      std::copy_n(pattern.begin(), std::min(kPattern, bytes.size() - at),
                  bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
    operands_.upload(operand.name, std::as_bytes(std::span(bytes)));
  }

  Device& device_;
  std::shared_ptr<Arena> arena_;
  Program traced_;
  TensorStore operands_;
};

// Measures the mixtures, one after the other, and prints a row for each.
class MixtureTable {
 public:
  MixtureTable(const GroupedGemmOptions& options, Device& device) : options_(options), device_(device) {
    const DeviceRate promised = built_in_model(device.name()).peak_flops;
    peak_ = options.peak_tflops > 0 ? options.peak_tflops * 1e12 : promised.per_second;
    if (device.kind() == DeviceKind::kCpu) unit_ = {"GFLOP/s", 1e9};
    std::printf(
        "GEMMs of experts of %lld x %lld on %s, %lld rows a token; backward is two thirds of the FLOPs and "
        "overwrites the gradients of weights, as the first micro-batch of a step does\n\n",
        static_cast<long long>(options.hidden_size), static_cast<long long>(options.intermediate_size),
        device.name().c_str(), static_cast<long long>(options.top_k));
    std::printf("%8s %8s %11s %11s %9s %9s %9s %9s %9s\n", "tokens", "experts", "forward ms", "backward ms", unit_.name,
                "backward", "of peak", "backward", "both");
  }

  void add(const MixtureShape& shape) {
    const MixtureGemms gemms(options_, shape, device_);
    Executable forward = gemms.executable(Phase::kForward);
    Executable backward = gemms.executable(Phase::kBackward);
    const std::function<void()> both[] = {[&] { forward.run(); }, [&] { backward.run(); }};
    const std::vector<double> seconds = seconds_in_turns(device_, both, options_.seconds / 2);
    const double flops[] = {gemms.flops(Phase::kForward), gemms.flops(Phase::kBackward)};
    const double rates[] = {flops[0] / seconds[0], flops[1] / seconds[1],
                            (flops[0] + flops[1]) / (seconds[0] + seconds[1])};
    std::printf("%8lld %8lld %11.3f %11.3f %9.1f %9.1f", static_cast<long long>(shape.tokens),
                static_cast<long long>(shape.experts), seconds[0] * 1e3, seconds[1] * 1e3, rates[0] / unit_.scale,
                rates[1] / unit_.scale);
    for (const double rate : rates) {
      if (peak_ > 0 && options_.dtype != TorchDtype::kFloat32 && !options_.fp8) {
        std::printf(" %8.1f%%", 100 * rate / peak_);
      } else {
        std::printf(" %9s", "-");
      }
    }
    std::printf("\n");
    std::fflush(stdout);
    const std::string text =
        text_of(shape.tokens, " tokens, ", shape.experts, " experts of ", options_.hidden_size, " x ",
                options_.intermediate_size, ", ", options_.top_k, " a token", options_.fp8 ? ", fp8" : "");
    const std::pair<const char*, double> figures[] = {
        {"forward", rates[0]}, {"backward", rates[1]}, {"forward and backward", rates[2]}};
    for (const auto& [name, rate] : figures) {
      rows_.push_back({text_of("grouped_gemm ", name), text, rate / unit_.scale, unit_.name});
    }
  }

  [[nodiscard]] std::span<const ResultRow> rows() const { return rows_; }

 private:
  const GroupedGemmOptions& options_;
  Device& device_;
  FlopUnit unit_;
  double peak_ = 0;  // FLOP/s
  std::vector<ResultRow> rows_;
};

void check_fp8_sizes(const GroupedGemmOptions& options) {
  if (options.dtype != TorchDtype::kBfloat16) throw Error("fp8", "is for bfloat16", "remove dtype, or fp8");
  const std::pair<const char*, std::int64_t> sizes[] = {{"hidden_size", options.hidden_size},
                                                        {"intermediate_size", options.intermediate_size}};
  for (const auto& [key, size] : sizes) {
    if (size % kScaleBlock != 0) {
      throw Error(key, text_of("is ", size, "; with fp8 it must be a multiple of ", kScaleBlock));
    }
  }
}

int grouped_gemm_bench(GroupedGemmOptions& options, const OptionInput&, const std::string& command) {
  if (options.shapes.empty()) throw Error("shapes", "is empty");
  if (options.fp8) check_fp8_sizes(options);
  std::vector<MixtureShape> shapes;
  shapes.reserve(options.shapes.size());
  for (const std::string& text : options.shapes) shapes.push_back(parse_shape(text));
  register_operations();
  Device& device = open_device(options.device);
  MixtureTable table(options, device);
  for (const MixtureShape& shape : shapes) table.add(shape);
  if (!options.json.empty()) {
    write_results(options.json, table.rows(), device.name(), command);
  }
  return 0;
}

}  // namespace

BenchKind bench_grouped_gemm() {
  return bench_kind("grouped_gemm", "GEMMs of the experts of a mixture, forward and backward", grouped_gemm_bench);
}

}  // namespace hone
