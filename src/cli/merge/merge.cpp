// hone merge: merges an adapter into its base model and writes the result as an ordinary model.
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/model_directory.h"
#include "cli/registry.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "model/loaded_model.h"
#include "model/weights.h"

namespace hone {
namespace {

enum class MergedType : std::uint8_t { kAsBase, kBfloat16, kFloat32 };

}  // namespace

template <>
inline constexpr EnumTable kEnumTable<MergedType>{.names = "auto|bfloat16|float32"};

namespace {

struct MergeOptions {
  std::string model_name_or_path;
  std::string output_dir;
  MergedType torch_dtype = MergedType::kAsBase;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Model");
    v("model_name_or_path", model_name_or_path, "Folder or Hugging Face name of the adapter; also the first argument");
    v("output_dir", output_dir, "Folder for the merged model");
    v("torch_dtype", torch_dtype, "Dtype of the merged weights; auto: the base model's");
  }
};

std::optional<DType> dtype_of(MergedType type) {
  if (type == MergedType::kAsBase) return std::nullopt;
  return type == MergedType::kBfloat16 ? DType::kBf16 : DType::kF32;
}

int run(const MergeOptions& options, const OptionInput& input) {
  const std::string name = model_argument("merge", options.model_name_or_path, input);
  const std::filesystem::path folder = resolve_model(name);
  if (!is_adapter_folder(folder)) {
    throw Error(folder.string(), "is not an adapter: it has no adapter_config.json, or it has weights of a model too",
                "name the output_dir of a run with use_peft");
  }
  if (options.output_dir.empty()) throw Error("output_dir", "is not set", "the folder for the merged model");
  ensure_writable_folder(options.output_dir, "output_dir");
  if (std::filesystem::equivalent(folder, options.output_dir)) {
    throw Error(input.place_of("output_dir"), "is the folder of the adapter itself", "choose another");
  }
  const LoadedModel merged = load_model(name, dtype_of(options.torch_dtype), open_device(DeviceChoice::kCpu));
  const Json generation_config = parse_json(merged.generation_config, "generation_config.json");
  save_model(options.output_dir, *merged.model, merged.weights, &generation_config);
  merged.tokenizer.save(options.output_dir);
  log_info(text_of("wrote ", options.output_dir, ": ", format_count(parameter_count(*merged.model)), " parameters in ",
                   name_of(model_dtype(*merged.model, merged.weights))));
  return 0;
}

}  // namespace

void register_merge(CommandRegistry& registry) {
  registry.add(make_command<MergeOptions>({.name = "merge",
                                           .summary = "Merge an adapter into its base model",
                                           .positionals = "[ADAPTER]",
                                           .details = "Adds in f32 and rounds once, to the dtype of the weights.\n"},
                                          run));
}

}  // namespace hone
