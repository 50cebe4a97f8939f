// hone convert
#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/model_directory.h"
#include "cli/registry.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "model/registry.h"
#include "train/options.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

struct ConvertOptions {
  std::string model_name_or_path;
  TorchDtype torch_dtype = TorchDtype::automatic;
  std::string max_shard_size = "5GB";
  std::string output_dir;

  template <class Visitor>
  void fields(Visitor& v) {
    v("model_name_or_path", model_name_or_path, "Folder of the model or of a checkpoint; also the first argument");
    v("torch_dtype", torch_dtype, "Type of the weights; auto is the checkpoint's");
    v.alias("dtype", "torch_dtype");
    v("max_shard_size", max_shard_size, "Bytes a file of weights, as transformers writes them: 5GB, 200MB, 1GiB");
    v("output_dir", output_dir, "Folder for the result");
  }
};

// As in transformers.
std::uint64_t shard_bytes(const std::string& text) {
  if (const std::optional<std::uint64_t> bytes = parse_bytes(text)) return *bytes;
  throw Error("max_shard_size", text_of("'", text, "' is no size"), "5GB or 200MB, for example");
}

// The tokenizer's files and whatever else describes the model: small files beside the weights.
void copy_other_files(const fs::path& from, const fs::path& to) {
  for (const std::string& name : names_in(from)) {
    const std::string extension = fs::path(name).extension().string();
    const bool describes = extension == ".json" || extension == ".txt" || extension == ".jinja" ||
                           extension == ".model" || extension == ".tiktoken" || name == "README.md" ||
                           name == "LICENSE";
    const bool is_written = name == "config.json" || name == "generation_config.json" ||
                            name.ends_with(".index.json") || name == "training_state.json";
    if (describes && !is_written && is_file(from / name)) write_file(to / name, read_file(from / name));
  }
}

// Each tensor in its turn, in one buffer.
std::vector<TensorSource> sources_of(const WeightFiles& weights, std::optional<DType> wanted,
                                     std::vector<std::byte>& buffer) {
  std::vector<TensorSource> sources;
  for (const std::string& name : weights.names()) {
    const StoredTensor& tensor = weights.at(name);
    const std::optional<DType> stored = dtype_of(tensor.type);
    const DType dtype = wanted.value_or(stored.value_or(DType::bf16));
    if (!wanted && !stored && tensor.type != StoredType::f16) {
      throw Error(tensor.file, text_of("tensor ", name, " is ", name_of(tensor.type)), "give --torch_dtype");
    }
    sources.push_back({name, dtype, tensor.shape, [&tensor, &buffer, dtype] {
                         buffer.resize(static_cast<std::size_t>(tensor.element_count()) * size_of(dtype));
                         read_as(tensor, dtype, buffer);
                         return std::span<const std::byte>(buffer);
                       }});
  }
  return sources;
}

int run(const ConvertOptions& options, const OptionInput& input) {
  const std::string name = model_argument("convert", options.model_name_or_path, input);
  if (options.output_dir.empty()) throw Error("output_dir", "is not set", "the folder for the result");
  const fs::path from = resolve_model(name);
  std::error_code ignored;
  if (fs::equivalent(from, options.output_dir, ignored)) {
    throw Error("output_dir", text_of(options.output_dir, " is the model's own folder"), "take another one");
  }
  const std::uint64_t bytes = shard_bytes(options.max_shard_size);
  const ModelDirectory directory(from);
  if (directory.weights().empty()) throw Error(from.string(), "the folder holds no weights");
  (void)family_registry().create(directory.config());  // refuses what hone does not know
  claim_folder(options.output_dir, "output_dir");
  std::optional<DType> wanted;
  if (options.torch_dtype == TorchDtype::bfloat16) wanted = DType::bf16;
  if (options.torch_dtype == TorchDtype::float32) wanted = DType::f32;
  Json config = directory.config();
  std::vector<std::byte> buffer;
  const std::vector<TensorSource> sources = sources_of(directory.weights(), wanted, buffer);
  std::uint64_t total = 0;
  for (const TensorSource& source : sources) total += source.byte_count();
  const DType dtype = sources.front().dtype;
  config["torch_dtype"] = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f32 ? "float32" : "float64";
  write_model_directory(options.output_dir, {.config = config,
                                             .generation_config = directory.generation_config(),
                                             .weights = sources,
                                             .max_shard_bytes = bytes});
  copy_other_files(from, options.output_dir);
  log_info(text_of("wrote ", options.output_dir, ": ", sources.size(), " tensors, ", format_bytes(total)));
  return 0;
}

}  // namespace

void register_convert(CommandRegistry& registry) {
  registry.add(make_command<ConvertOptions>(
      {.name = "convert",
       .summary = "A model or checkpoint in another type, or in files of another size",
       .positionals = "[MODEL]",
       .details = "The result is a folder in Hugging Face's layout; a checkpoint's state of training stays behind."},
      run));
}

}  // namespace hone
