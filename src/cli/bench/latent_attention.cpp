#include "ops/latent_attention/latent_attention.h"

#include <cmath>
#include <cstdio>
#include <memory>

#include "backend/device_option.h"
#include "cli/bench/kind.h"
#include "cli/bench/results.h"
#include "cli/profile/limits.h"
#include "cli/profile/timing.h"
#include "core/random.h"
#include "ops/normal_fill/normal_fill.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "train/options.h"

namespace hone {
namespace {

// Sizes of DeepSeek's latent rows.
constexpr std::int64_t kBenchRank = 512;
constexpr std::int64_t kBenchWidth = kBenchRank + 64;

struct LatentAttentionOptions {
  std::vector<std::int64_t> heads = {16, 128};
  std::vector<std::int64_t> streams = {64};
  std::vector<std::int64_t> contexts = {8192};
  std::int64_t block_size = 32;
  TorchDtype dtype = TorchDtype::kBfloat16;
  DeviceChoice device = DeviceChoice::kAutomatic;
  double seconds = 0.5;
  std::string json;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Sequences");
    v("heads", heads, "Numbers of query heads, which share the latent rows of 512 and 64 numbers", within(1, 1024));
    v("streams", streams, "Numbers of sequences, which have one new token each", within(1, 65536));
    v("contexts", contexts, "Numbers of latent rows of a sequence", within(1, 1 << 20));
    v("block_size", block_size, "Rows of a page", within(1, 1 << 20));
    v("dtype", dtype, "Dtype of queries and rows");
    v("device", device, kDeviceHelp);
    v.group("Measurement");
    v("seconds", seconds, "Seconds of measurement per shape", above(0));
    v("json", json, "JSON file to write the results to");
  }
};

struct LatentShape {
  std::int64_t heads, streams, context, block_size;
};

// One call of the operation on random queries and rows, in pages of a shuffled table.
class LatentCall {
 public:
  LatentCall(const LatentShape& shape, DType dtype, Device& device) : arena_(std::make_shared<Arena>(device)) {
    const std::int64_t pages = (shape.context + shape.block_size - 1) / shape.block_size;
    const std::vector<NamedType> types{{"query", {dtype, {shape.streams, shape.heads * kBenchWidth}}},
                                       {"cache", {dtype, {shape.streams * pages, shape.block_size, kBenchWidth}}},
                                       {"block_table", {DType::kI32, {shape.streams, pages}}},
                                       {"cu_seqlens", {DType::kI32, {shape.streams + 1}}},
                                       {"starts", {DType::kI32, {shape.streams}}}};
    operands_ = TensorStore(device, types);
    fill(device, types[LatentAttentionIn::query]);
    fill(device, types[LatentAttentionIn::cache]);
    std::vector<std::int32_t> table(static_cast<std::size_t>(shape.streams * pages));
    const RandomStream random(1, "pages");
    for (std::size_t i = 0; i < table.size(); ++i) {
      const auto other = static_cast<std::size_t>(random.below(i, i + 1));
      table[i] = table[other];
      table[other] = static_cast<std::int32_t>(i);
    }
    std::vector<std::int32_t> cu_seqlens;
    for (std::int64_t i = 0; i <= shape.streams; ++i) cu_seqlens.push_back(static_cast<std::int32_t>(i));
    const std::vector<std::int32_t> starts(static_cast<std::size_t>(shape.streams),
                                           static_cast<std::int32_t>(shape.context - 1));
    operands_.upload("block_table", std::as_bytes(std::span(table)));
    operands_.upload("cu_seqlens", std::as_bytes(std::span(cu_seqlens)));
    operands_.upload("starts", std::as_bytes(std::span(starts)));
    Program program;
    std::vector<Tensor> inputs;
    inputs.reserve(types.size());
    for (const NamedType& each : types) inputs.push_back(program.weight(each.name, each.type));
    program.output(
        "o",
        latent_attention(
            inputs[LatentAttentionIn::query], inputs[LatentAttentionIn::cache], inputs[LatentAttentionIn::block_table],
            inputs[LatentAttentionIn::cu_seqlens], inputs[LatentAttentionIn::starts],
            {.heads = shape.heads, .rank = kBenchRank, .scale = 1 / std::sqrt(static_cast<double>(kBenchWidth))}));
    executable_ = std::make_unique<Executable>(program, arena_, Bindings{.weights = &operands_});
  }

  void run() { executable_->run(); }

 private:
  void fill(Device& device, const NamedType& each) {
    Program program;
    (void)normal_fill(program.weight(each.name, each.type),
                      {.key = static_cast<std::int64_t>(RandomStream(1, each.name).key()),
                       .deviation = 1,
                       .first = 0,
                       .count = each.type.elements()});
    Executable(program, std::make_shared<Arena>(device), {.weights = &operands_}).run();
    device.synchronize();
  }

  std::shared_ptr<Arena> arena_;
  TensorStore operands_;
  std::unique_ptr<Executable> executable_;
};

int latent_attention_bench(LatentAttentionOptions& options, const OptionInput&, const std::string& command) {
  register_operations();
  Device& device = open_device(options.device);
  const DType dtype = options.dtype == TorchDtype::kFloat32 ? DType::kF32 : DType::kBf16;
  // The copies are those of this run, as in bench kernels.
  const DeviceLimits limits = device_limits(device, dtype, options.seconds, true);
  std::printf("attention to latent rows on %s; a copy reads and writes %.0f GB/s\n\n", device.name().c_str(),
              limits.copy_bytes_per_second * 1e-9);
  const FlopUnit unit = flop_unit(limits.flops_per_second);
  std::printf("%8s %8s %8s %10s %10s %10s %10s\n", "heads", "streams", "context", "us", "GB/s", "of a copy", unit.name);
  std::vector<ResultRow> rows;
  for (const std::int64_t heads : options.heads) {
    for (const std::int64_t streams : options.streams) {
      for (const std::int64_t context : options.contexts) {
        LatentCall call({heads, streams, context, options.block_size}, dtype, device);
        const double seconds = seconds_per_run(device, [&] { call.run(); }, options.seconds);
        const auto numbers = static_cast<double>(streams * context * kBenchWidth);
        const double rate = numbers * static_cast<double>(size_of(dtype)) / seconds;
        const double flops =
            2.0 * static_cast<double>(streams * context * heads * (kBenchWidth + kBenchRank)) / seconds;
        std::printf("%8lld %8lld %8lld %10.1f %10.0f %9.1f%% %10.1f\n", static_cast<long long>(heads),
                    static_cast<long long>(streams), static_cast<long long>(context), seconds * 1e6, rate * 1e-9,
                    100 * rate / limits.copy_bytes_per_second, flops / unit.scale);
        std::fflush(stdout);
        const std::string text = text_of(heads, " heads, streams ", streams, ", context ", context);
        rows.push_back({"latent_attention", text, seconds * 1e6, "us"});
        rows.push_back({"latent_attention", text, 100 * rate / limits.copy_bytes_per_second, "% of a copy"});
      }
    }
  }
  if (!options.json.empty()) write_results(options.json, rows, device.name(), command);
  return 0;
}

}  // namespace

BenchKind bench_latent_attention() {
  return bench_kind("latent_attention", "absorbed attention to latent rows of a KV cache, compared with a copy's rate",
                    latent_attention_bench);
}

}  // namespace hone
