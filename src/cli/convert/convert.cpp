// hone convert: rewrites the weights of a model, adapter or checkpoint in another dtype, layout or shard size.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/fp8_tensor.h"
#include "checkpoint/model_directory.h"
#include "cli/convert/expert_sources.h"
#include "cli/convert/fp8_sources.h"
#include "cli/registry.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "model/adapter_config.h"
#include "model/expert_layout.h"
#include "model/quantization.h"
#include "model/registry.h"
#include "train/options.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

struct ConvertOptions {
  std::string model_name_or_path;
  TorchDtype torch_dtype = TorchDtype::kAutomatic;
  Quantization quantization = Quantization::kAutomatic;
  ExpertLayout experts = ExpertLayout::kAsStored;
  std::string max_shard_size = "5GB";
  std::string output_dir;

  template <class Visitor>
  void fields(Visitor& v) {
    v("model_name_or_path", model_name_or_path, "Folder or Hugging Face name of the model; also the first argument");
    v("torch_dtype", torch_dtype, "Dtype of the weights; auto: as stored");
    v.alias("dtype", "torch_dtype");
    v("quantization", quantization,
      "Weights of linear layers: fp8 (e4m3 with a scale for each 128 x 128), none (torch_dtype, or bfloat16); auto: as "
      "stored, or as torch_dtype says");
    v("experts", experts,
      "Experts of a mixture: split (a tensor for each expert and projection, as published), merged (one tensor for all "
      "experts, as transformers 5 has them in memory); auto: as stored");
    v("max_shard_size", max_shard_size, "Maximum size of a file of weights, written as in transformers: 5GB, 1GiB");
    v("output_dir", output_dir, "Folder for the result");
  }
};

// Parses a size in the notation of transformers.
std::uint64_t shard_bytes(const std::string& text) {
  if (const std::optional<std::uint64_t> bytes = parse_bytes(text)) return *bytes;
  throw Error("max_shard_size", text_of("expected a size, saw '", text, "'"), "for example 5GB or 200MB");
}

constexpr const char* kConvertedAdapterConfig = "adapter_config.json";
constexpr const char* kConvertedAdapterWeights = "adapter_model.safetensors";

// Copies the tokenizer and the other small files that describe the model. Leaves out the files that the conversion
// writes itself, and a configuration whose weights are not converted.
void copy_other_files(const fs::path& from, const fs::path& to) {
  for (const std::string& name : list_folder(from)) {
    const std::string extension = fs::path(name).extension().string();
    const bool describes = extension == ".json" || extension == ".txt" || extension == ".jinja" ||
                           extension == ".model" || extension == ".tiktoken" || name == "README.md" ||
                           name == "LICENSE";
    const bool is_written = name == "config.json" || name == "generation_config.json" ||
                            name.ends_with(".index.json") || name == "training_state.json" ||
                            name == kConvertedAdapterConfig;
    if (describes && !is_written && is_file(from / name)) write_file(to / name, read_file(from / name));
  }
}

// Makes sources that read and convert the tensors piece by piece. All share one buffer, so they must be read in turn.
std::vector<TensorSource> sources_of(std::span<const StoredTensor* const> tensors, std::optional<DType> wanted,
                                     std::vector<std::byte>& buffer) {
  std::vector<TensorSource> sources;
  for (const StoredTensor* each : tensors) {
    const StoredTensor& tensor = *each;
    const std::string& name = tensor.name;
    const std::optional<DType> stored = dtype_of(tensor.type);
    if (!wanted && tensor.type == StoredType::kF16) log_once("float16 weights are written as bfloat16");
    const DType dtype = wanted.value_or(stored.value_or(DType::kBf16));
    if (!wanted && !stored && tensor.type != StoredType::kF16) {
      throw Error(tensor.file, text_of("tensor ", name, " is ", name_of(tensor.type)),
                  "set --torch_dtype to bfloat16 or float32");
    }
    sources.push_back({name, dtype, tensor.shape, [&tensor, &buffer, dtype](std::uint64_t begin, std::size_t most) {
                         buffer.resize(most);
                         read_as(tensor, dtype, static_cast<std::int64_t>(begin / size_of(dtype)), buffer);
                         return std::span<const std::byte>(buffer);
                       }});
  }
  return sources;
}

std::optional<DType> wanted_type(TorchDtype type) {
  if (type == TorchDtype::kBfloat16) return DType::kBf16;
  if (type == TorchDtype::kFloat32) return DType::kF32;
  return std::nullopt;
}

std::uint64_t bytes_of(std::span<const TensorSource> sources) {
  std::uint64_t total = 0;
  for (const TensorSource& source : sources) total += source.byte_count();
  return total;
}

void log_written(const ConvertOptions& options, std::string_view what, std::span<const TensorSource> sources) {
  log_info(
      text_of("wrote ", options.output_dir, ": ", what, sources.size(), " tensors, ", format_bytes(bytes_of(sources))));
}

// Returns the adapter's configuration for the folder `to`. A path of the base model that is relative to the adapter's
// folder becomes relative to `to`.
Json adapter_config_for(const fs::path& from, const fs::path& to) {
  Json config = read_json(from / kConvertedAdapterConfig);
  (void)AdapterConfig(config, (from / kConvertedAdapterConfig).string());  // throws if hone does not support it
  const auto base = config.find("base_model_name_or_path");
  if (base == config.end() || !base->is_string()) return config;
  const fs::path name = base->get<std::string>();
  if (name.is_relative() && !is_folder(name) && is_folder(from / name)) {
    *base = fs::relative(from / name, to).string();
  }
  return config;
}

// w8a8_fp8 says how weights are used.
void check_written(const ConvertOptions& options, const OptionInput& input) {
  if (options.quantization == Quantization::kW8a8Fp8) {
    throw Error(input.place_of("quantization"), "w8a8_fp8, but activations are quantized in generation",
                "fp8, which writes the weights for it");
  }
}

// Converts an adapter to an adapter, in the single file that PEFT reads. Its base model is not read and need not exist.
void convert_adapter(const ConvertOptions& options, const OptionInput& input, const fs::path& from,
                     std::uint64_t most_bytes) {
  if (options.quantization == Quantization::kFp8)
    throw Error(input.place_of("quantization"), "fp8, but an adapter has no FP8 weights", "hone merge it first");
  if (options.experts != ExpertLayout::kAsStored)
    throw Error(input.place_of("experts"), "is set, but an adapter has no experts", "hone merge it first");
  const SafetensorsFile file(from / kConvertedAdapterWeights);
  std::vector<const StoredTensor*> tensors;
  for (const StoredTensor& tensor : file.tensors()) tensors.push_back(&tensor);
  std::vector<std::byte> buffer;
  const std::vector<TensorSource> sources = sources_of(tensors, wanted_type(options.torch_dtype), buffer);
  if (input.was_set("max_shard_size") && bytes_of(sources) > most_bytes) {
    throw Error(
        input.place_of("max_shard_size"),
        text_of(options.max_shard_size, ", but an adapter is one file, here of ", format_bytes(bytes_of(sources))),
        "remove it, or write base and adapter as one model with hone merge");
  }
  ensure_writable_folder(options.output_dir, "output_dir");
  const Json config = adapter_config_for(from, options.output_dir);
  write_safetensors(fs::path(options.output_dir) / kConvertedAdapterWeights, sources);
  write_json(fs::path(options.output_dir) / kConvertedAdapterConfig, config);
  if (is_file(from / "generation_config.json")) {
    write_file(fs::path(options.output_dir) / "generation_config.json", read_file(from / "generation_config.json"));
  }
  log_written(options, "an adapter (hone merge merges it into its base), ", sources);
}

// Makes the sources of a model's tensors, and sets what config.json says of FP8.
std::vector<TensorSource> model_sources(const ConvertOptions& options, const Model& model,
                                        const ModelDirectory& directory, Json& config, std::vector<std::byte>& buffer) {
  const WeightFiles& files = directory.weights();
  check_quantization(config, (directory.path() / "config.json").string());
  const std::optional<DType> wanted = wanted_type(options.torch_dtype);
  const bool to_fp8 = options.quantization == Quantization::kFp8;
  const bool keeps = to_fp8 || (options.quantization == Quantization::kAutomatic && !wanted);
  if (to_fp8 && wanted == DType::kF32)
    throw Error("quantization", "fp8 with torch_dtype float32", "leave out torch_dtype");
  std::optional<Fp8Conversion> conversion;
  if (to_fp8) conversion.emplace(model, files);
  std::optional<ExpertConversion> experts;
  if (options.experts != ExpertLayout::kAsStored) experts.emplace(model, files, options.experts);
  std::vector<const StoredTensor*> others;
  std::vector<TensorSource> sources;
  bool any_fp8 = false;
  for (const std::string& name : files.names()) {
    const StoredTensor& tensor = files.at(name);
    if (experts && experts->takes(name)) continue;
    if (tensor.type == StoredType::kF8E4m3) {
      const ScaledTensor scaled = with_scales(tensor, files);
      std::vector<TensorSource> made =
          keeps ? kept_in_fp8(scaled) : std::vector{converted_from_fp8(scaled, wanted.value_or(DType::kBf16), buffer)};
      std::ranges::move(made, std::back_inserter(sources));
      any_fp8 = true;
    } else if (conversion && conversion->takes(tensor)) {
      std::ranges::move(conversion->sources(tensor), std::back_inserter(sources));
      any_fp8 = true;
    } else if (!are_fp8_scales(name, files)) {
      others.push_back(&tensor);
    }
  }
  if (to_fp8 && !any_fp8)
    throw Error("quantization", "fp8, but this model has no matrices that are stored in FP8", "leave it out");
  std::ranges::move(sources_of(others, wanted, buffer), std::back_inserter(sources));
  if (experts) {
    std::ranges::move(experts->sources({.wanted = wanted, .keeps_fp8 = keeps}, buffer), std::back_inserter(sources));
  }
  if (!keeps) config.erase(std::string(kQuantizationKey));
  if (to_fp8) config[std::string(kQuantizationKey)] = fp8_quantization_config(conversion->kept());
  return sources;
}

void convert_model(const ConvertOptions& options, const fs::path& from, std::uint64_t most_bytes) {
  const ModelDirectory directory(from);
  if (directory.weights().empty()) throw Error(from.string(), "the folder holds no weights");
  const std::unique_ptr<Model> model = family_registry().create(directory.config());
  // The layer for multi-token prediction has experts too.
  const auto is_left_out = [&](const std::string& name) { return !model->left_out(name).empty(); };
  if (std::ranges::any_of(directory.weights().names(), is_left_out)) (void)model->keep_predictions();
  ensure_writable_folder(options.output_dir, "output_dir");
  Json config = directory.config();
  std::vector<std::byte> buffer;
  const std::vector<TensorSource> sources = model_sources(options, *model, directory, config, buffer);
  // Next to weights in FP8 the others say it.
  const auto typed = std::ranges::find_if(sources, [](const TensorSource& source) {
    return is_floating(source.dtype) && !source.name.ends_with(kScaleSuffix);
  });
  const DType dtype = typed != sources.end() ? typed->dtype : DType::kBf16;
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype == DType::kBf16  ? "bfloat16"
                                                               : dtype == DType::kF32 ? "float32"
                                                                                      : "float64";
  write_model_directory(options.output_dir, {.config = config,
                                             .generation_config = directory.generation_config(),
                                             .weights = sources,
                                             .max_shard_bytes = most_bytes});
  if (is_file(from / kConvertedAdapterWeights)) {
    log_warning(text_of(from.string(), " holds an adapter next to the model's weights; the adapter is not converted"));
  }
  log_written(options, "", sources);
}

int run(const ConvertOptions& options, const OptionInput& input) {
  const std::string name = model_argument("convert", options.model_name_or_path, input);
  if (options.output_dir.empty()) throw Error("output_dir", "is not set", "the folder for the result");
  const fs::path from = resolve_model(name);
  std::error_code ignored;
  if (fs::equivalent(from, options.output_dir, ignored)) {
    throw Error("output_dir", text_of(options.output_dir, " is the folder of the model itself"), "choose another");
  }
  const std::uint64_t most_bytes = shard_bytes(options.max_shard_size);
  check_written(options, input);
  if (is_adapter_folder(from)) {
    convert_adapter(options, input, from, most_bytes);
  } else {
    convert_model(options, from, most_bytes);
  }
  copy_other_files(from, options.output_dir);
  return 0;
}

}  // namespace

void register_convert(CommandRegistry& registry) {
  registry.add(make_command<ConvertOptions>(
      {.name = "convert",
       .summary = "Convert a model, adapter or checkpoint to another dtype, layout of experts or shard size",
       .positionals = "[MODEL]",
       .details = "Writes a folder in the Hugging Face layout, without the training state of a checkpoint. An adapter\n"
                  "stays an adapter; hone merge turns it into a model."},
      run));
}

}  // namespace hone
