#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "backend/device_model.h"
#include "cli/bench/kind.h"
#include "cli/bench/read_rate.h"
#include "cli/bench/results.h"
#include "cli/bench/training_step.h"
#include "cli/command.h"
#include "cli/engine_job.h"
#include "cli/profile/limits.h"
#include "cli/profile/report.h"
#include "cli/profile/timeline.h"
#include "cli/profile/timing.h"
#include "core/error.h"
#include "core/log.h"
#include "core/random.h"
#include "core/strings.h"
#include "engine/engine.h"
#include "engine/engine_part.h"
#include "model/loaded_model.h"
#include "model/quantization.h"
#include "model/weights.h"
#include "ops/registry.h"
#include "program/node_observer.h"
#include "train/setup.h"

namespace hone {
namespace {

struct BenchDecodeOptions {
  std::string model = "qwen2.5-0.5b";
  std::int64_t layers = 0;
  std::vector<std::int64_t> streams = {1, 8, 64, 256};
  std::vector<std::int64_t> contexts = {1024};
  std::int64_t steps = 128;
  double temperature = 1;
  TorchDtype dtype = TorchDtype::kBfloat16;
  Quantization quantization = Quantization::kNone;
  CacheOptions cache;
  DeviceChoice device = DeviceChoice::kAutomatic;
  std::int64_t tensor_parallel_size = 1;
  GemmOptions gemm;
  bool profile = false;
  std::string json;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Decoding");
    v("model", model, "Name of a known shape such as qwen2.5-7b, or path of a config.json");
    v("layers", layers, "Number of layers; 0: the model's", at_least(0));
    v("streams", streams, "Numbers of requests that run concurrently", within(1, 65536));
    v("contexts", contexts, "Tokens of prompt and answer in the middle of the measurement", within(2, 1 << 20));
    v("steps", steps, "Measured steps, one token of each request", at_least(1));
    v("temperature", temperature, "Divides the logits; 0: greedy decoding", at_least(0));
    v("dtype", dtype, "Dtype of the weights and the KV cache");
    v("quantization", quantization,
      "Weights of linear layers: fp8 (e4m3 with a scale for each 128 x 128), w8a8_fp8 (their inputs too); auto, none: "
      "as dtype");
    cache.fields(v);
    v("device", device, kDeviceHelp);
    v("tensor_parallel_size", tensor_parallel_size, kTensorGroupHelp, within(1, 1024));
    gemm.fields(v);
    v.group("Measurement");
    v("profile", profile, "Print the time of each operation too; they are then launched one by one");
    v("json", json, "JSON file to write the results to");
  }

  [[nodiscard]] DType weight_dtype() const { return dtype == TorchDtype::kFloat32 ? DType::kF32 : DType::kBf16; }
  [[nodiscard]] bool in_fp8() const {
    return quantization == Quantization::kFp8 || quantization == Quantization::kW8a8Fp8;
  }
  // The options that name the model.
  [[nodiscard]] StepOptions shape() const {
    StepOptions options;
    options.model = model;
    options.layers = layers;
    options.dtype = dtype;
    return options;
  }
};

constexpr std::int64_t kWarmSteps = 6;  // the second run of a program records it
constexpr std::int64_t kProfiledDecodes = 3;
constexpr std::int64_t kPrefillTokens = 8192;  // of one step
constexpr double kCopyLimitSeconds = 0.5;      // duration of the measurement of a limit that is not stored yet

// Returns a tokenizer for an engine whose requests ask for tokens without text.
Tokenizer no_text_tokenizer() {
  return Tokenizer::from_json(R"({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
      "post_processor": null, "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
}

struct Decoded {
  double seconds_per_step = 0;
  double first_token_seconds = 0;  // of one prompt of the context's length, alone
};

// An engine with random weights in which all streams decode.
class Decoding {
 public:
  Decoding(const BenchDecodeOptions& options, const Model& model, const TensorStore& weights,
           const std::shared_ptr<Arena>& arena, std::int64_t streams, std::int64_t context, EngineGroup* group)
      : options_(options),
        model_(model),
        streams_(streams),
        prompt_length_(context - options.steps / 2),
        workspace_(arena) {
    // While the last prompts are read, the first requests decode already.
    const std::int64_t batch = std::max(std::min(streams * prompt_length_, kPrefillTokens), streams);
    answer_length_ = (streams * prompt_length_ + batch - 1) / batch + streams + kWarmSteps + options.steps;
    if (options.profile) answer_length_ += kProfiledDecodes;
    check_positions(model.shape(), prompt_length_ + answer_length_ + 1, "contexts");
    engine_options_ = {.max_model_len = prompt_length_ + answer_length_ + 1,
                       .max_num_seqs = streams,
                       .max_batch_tokens = batch,
                       .cache = options.cache};
    if (group != nullptr) {
      engine_ = std::make_unique<Engine>(model, tokenizer_, weights, arena, engine_options_, group);
      return;
    }
    workspace_.add_weights(kWeightStore, weights.tensors());
    add_generation(workspace_, model, options.weight_dtype(), engine_options_);
    workspace_.provide(kWeightStore, weights.view());
    workspace_.allocate(arena->device());
    engine_ = std::make_unique<Engine>(model, tokenizer_, workspace_, engine_options_);
  }

  [[nodiscard]] Decoded measure() {
    for (std::int64_t i = 0; i < streams_; ++i) ids_.push_back(add_request(answer_length_));
    std::set<RequestId> began;
    while (static_cast<std::int64_t>(began.size()) < streams_) {
      for (const Engine::Update& update : engine_->step()) began.insert(update.id);
    }
    for (std::int64_t i = 0; i < kWarmSteps; ++i) decode();
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < options_.steps; ++i) decode();
    Decoded result{.seconds_per_step = seconds_since(start) / static_cast<double>(options_.steps)};
    if (options_.profile) profile();
    for (const RequestId id : ids_) engine_->cancel(id);
    for (int i = 0; i < 3; ++i) {
      const auto begin = Clock::now();
      const RequestId id = add_request(1);
      while (engine_->step().empty()) {
      }
      result.first_token_seconds = seconds_since(begin);
      engine_->cancel(id);
    }
    return result;
  }

  // Bytes of the KV cache for each token that it has room for.
  [[nodiscard]] double kv_bytes_per_token() const {
    return static_cast<double>(engine_->kv_bytes()) /
           static_cast<double>(resolved(engine_options_).num_blocks * engine_options_.block_size);
  }
  // Bytes of the KV cache that a step reads in the middle of the measurement.
  [[nodiscard]] double kv_bytes() const {
    const auto context = static_cast<double>(prompt_length_) + static_cast<double>(options_.steps) / 2;
    return kv_bytes_per_token() * context * static_cast<double>(streams_);
  }

 private:
  // Steps once; each stream gets a token.
  void decode() {
    const auto tokens = static_cast<std::int64_t>(engine_->step().size());
    HONE_ASSERT(tokens == streams_, tokens, " of ", streams_, " streams got a token");
  }

  RequestId add_request(std::int64_t max_tokens) {
    const RandomStream random(static_cast<std::uint64_t>(1 + added_++), "bench prompts");
    Request request;
    request.sampling = {.temperature = options_.temperature,
                        .max_tokens = max_tokens,
                        .seed = static_cast<std::uint64_t>(added_),
                        .detokenize = false};
    for (std::int64_t t = 0; t < prompt_length_; ++t) {
      request.prompt.push_back(static_cast<TokenId>(
          random.below(static_cast<std::uint64_t>(t), static_cast<std::uint64_t>(model_.shape().vocab_size))));
    }
    return engine_->add(std::move(request));
  }

  // Prints the times of the operations of a step.
  void profile() {
    Timeline timeline;
    for (std::int64_t i = 0; i < kProfiledDecodes; ++i) {
      std::map<std::string, NodeClock> times;
      for (const std::string& name : workspace_.program_names()) {
        workspace_.executable(name).set_observer(&times[name]);
      }
      const auto begin = Clock::now();
      decode();
      const double seconds = seconds_since(begin);
      for (const auto& [name, each] : times) {
        Executable& executable = workspace_.executable(name);
        executable.set_observer(nullptr);
        if (each.seconds().empty()) continue;
        timeline.add_run(timeline.add_program(executable, {}), executable.program(), seconds, each);
      }
      timeline.steps.push_back({0, seconds});
    }
    const DeviceLimits limits =
        device_limits(open_device(options_.device), options_.weight_dtype(), kCopyLimitSeconds, false);
    std::fputs(text_of("attention's GB/s and share of the roofline count pages for ", engine_options_.max_model_len,
                       " tokens, of which some ", prompt_length_ + options_.steps, " are in use\n")
                   .c_str(),
               stdout);
    std::fputs(to_text(make_report(timeline, limits), 40).c_str(), stdout);
  }

  const BenchDecodeOptions& options_;
  const Model& model_;
  std::int64_t streams_;
  std::int64_t prompt_length_;
  std::int64_t answer_length_ = 0;
  EngineOptions engine_options_;
  Workspace workspace_;  // empty in a group
  Tokenizer tokenizer_ = no_text_tokenizer();
  std::unique_ptr<Engine> engine_;
  std::vector<RequestId> ids_;
  std::int64_t added_ = 0;
};

// Bytes of the weights that each step reads: all but the rows of an untied embedding.
double weight_bytes(const Model& model, const TensorStore& weights) {
  double bytes = 0;
  for (const WeightSpec& spec : model.weights()) {
    if (spec.kind == WeightKind::embedding && !has_tied_head(model)) continue;
    bytes += static_cast<double>(weights.type(spec.name).bytes());
  }
  return bytes;
}

// The rate that limits decoding: of copies on a GPU, of reading on a CPU. The latter is measured next to each decoding,
// because the load of the machine changes it.
class MemoryLimit {
 public:
  MemoryLimit(Device& device, DType dtype, double weight_bytes) {
    if (device.kind() == DeviceKind::kCpu) {
      reading_.emplace(device, static_cast<std::size_t>(std::clamp(4 * weight_bytes, kLeastRead, kMostRead)));
    } else {
      rate_ = device_limits(device, dtype, kCopyLimitSeconds, false).copy_bytes_per_second;
    }
  }
  // Call before a decoding.
  void begin() {
    if (reading_) rate_ = reading_->measure();
  }
  // Call after it.
  void end() {
    if (reading_) rate_ = std::max(rate_, reading_->measure());
  }
  [[nodiscard]] std::string share(double bytes_per_second) const {
    std::array<char, 64> text{};
    const double percent = 100 * bytes_per_second / rate_;
    reading_ ? std::snprintf(text.data(), text.size(), "%.0f%% of a read's %.1f GB/s", percent, rate_ * 1e-9)
             : std::snprintf(text.data(), text.size(), "%.0f%% of a copy's rate", percent);
    return text.data();
  }

 private:
  static constexpr double kLeastRead = 64 << 20, kMostRead = 1 << 30;  // bytes

  std::optional<ReadRate> reading_;
  double rate_ = 0;  // bytes per second
};

// The model with random weights, or this rank's part of it.
LoadedModel random_model(const BenchDecodeOptions& options, EngineGroup* group) {
  register_operations();
  Device& device = open_device(options.device);
  set_gemm_tuning(device, options.gemm.tuning());
  const ModelSetup setup = engine_part(group, {.cache = options.cache});
  std::unique_ptr<Model> model = setup.wrap(open_shape(options.shape()));
  if (options.in_fp8()) {
    if (options.weight_dtype() != DType::kBf16) {
      throw Error("--quantization", text_of(name_of(options.quantization), " needs activations in bfloat16"),
                  "leave out --dtype");
    }
    model = quantized_model(std::move(model), options.quantization, device);
  }
  setup.check(*model);
  TensorStore weights = random_weights(*model, 1, options.weight_dtype(), device);
  return {{}, std::move(model), std::move(weights), no_text_tokenizer(), "{}"};
}

std::string text_of_shape(const BenchDecodeOptions& options, std::int64_t streams, std::int64_t context) {
  return text_of(options.model, options.in_fp8() ? text_of(" in ", name_of(options.quantization)) : "",
                 !options.cache.latent_kv_cache                            ? ""
                 : options.cache.latent_attention == LatentForm::kAbsorbed ? ", latent rows absorbed"
                                                                           : ", latent rows",
                 options.cache.kv_cache_dtype == KvCacheDtype::kFp8 ? ", KV cache in FP8" : "",
                 options.tensor_parallel_size > 1 ? text_of(" over ", options.tensor_parallel_size, " devices") : "",
                 ", streams ", streams, ", context ", context);
}

// Measures and prints. Bytes are those of this rank's part.
int measure_decoding(const BenchDecodeOptions& options, const std::string& command, EngineGroup* group) {
  Device& device = open_device(options.device);
  const LoadedModel loaded = random_model(options, group);
  const double weights_read = weight_bytes(*loaded.model, loaded.weights);
  MemoryLimit limit(device, options.weight_dtype(), weights_read);
  std::vector<ResultRow> rows;
  for (const std::int64_t context : options.contexts) {
    for (const std::int64_t streams : options.streams) {
      const auto arena = std::make_shared<Arena>(device);
      Decoding decoding(options, *loaded.model, loaded.weights, arena, streams, context, group);
      limit.begin();
      const Decoded decoded = decoding.measure();
      limit.end();
      const double rate = static_cast<double>(streams) / decoded.seconds_per_step;
      const double bytes = (weights_read + decoding.kv_bytes()) / decoded.seconds_per_step;
      const std::string shape = text_of_shape(options, streams, context);
      const bool tera = bytes >= 1e12;
      std::printf(
          "%s: %.0f tokens/s, step %.3f ms, %.2f %s (%s), first token after %.1f ms, "
          "KV cache %.0f bytes/token\n",
          shape.c_str(), rate, decoded.seconds_per_step * 1e3, bytes * (tera ? 1e-12 : 1e-9), tera ? "TB/s" : "GB/s",
          limit.share(bytes).c_str(), decoded.first_token_seconds * 1e3, decoding.kv_bytes_per_token());
      std::fflush(stdout);
      rows.push_back({"decode", shape, rate, "tokens/s"});
      rows.push_back({"decode", shape, decoded.seconds_per_step * 1e3, "ms"});
      rows.push_back({"decode", shape, bytes * 1e-12, "TB/s"});
      rows.push_back({"decode, first token", shape, decoded.first_token_seconds * 1e3, "ms"});
    }
  }
  if (!options.json.empty()) write_results(options.json, rows, device.name(), command);
  return 0;
}

int decode_bench(BenchDecodeOptions& options, const OptionInput&, const std::string& command) {
  for (const std::int64_t context : options.contexts) {
    if (context > options.steps / 2) continue;
    throw Error("--contexts", text_of(context, " is no longer than half of the ", options.steps, " measured steps"),
                text_of("at least ", options.steps / 2 + 1, ", or fewer --steps"));
  }
  if (options.profile && options.tensor_parallel_size > 1)
    throw Error("--profile", "is of one process", "leave out --tensor_parallel_size");
  return run_engine_job(
      {.tensor_parallel_size = options.tensor_parallel_size, .device = options.device},
      [&](EngineGroup* group) { return random_model(options, group); },
      [&](EngineGroup* group) { return measure_decoding(options, command, group); });
}

}  // namespace

BenchKind bench_decode() {
  return bench_kind("decode", "tokens per second of the generation engine, over streams and contexts", decode_bench);
}

}  // namespace hone
