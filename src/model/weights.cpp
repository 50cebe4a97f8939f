#include "model/weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "checkpoint/fp8_tensor.h"
#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/random.h"
#include "model/adapter_merge.h"
#include "model/config_reader.h"
#include "model/expert_layout.h"
#include "model/fp8_model.h"
#include "model/fp8_weights.h"
#include "model/tensor_parallel_model.h"
#include "model/weight_tensors.h"
#include "ops/normal_fill/normal_fill.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "program/kernel.h"

namespace hone {
namespace {

constexpr std::string_view kHeadTensor = "lm_head.weight";

// Returns true for tensors that checkpoints contain although the model computes them itself.
bool is_derived(const Model& model, std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias") || (name == kHeadTensor && has_tied_head(model));
}

// Finds the tensor of that name, also without the model's base prefix if the folder omits it. If an adapter unties the
// head from the embedding and the folder has no head, returns the embedding's tensor for the head.
const StoredTensor& stored(const Model& model, const ModelDirectory& directory, const std::string& name) {
  const WeightFiles& files = directory.weights();
  const std::string_view prefix = model.base_prefix();
  if (!prefix.empty() && name.starts_with(prefix) && files.find(name) == nullptr) {
    if (const StoredTensor* bare = files.find(name.substr(prefix.size()))) return *bare;
  }
  if (name == kHeadTensor && !directory.adapters().empty() && files.find(name) == nullptr) {
    for (const WeightSpec& spec : model.weights()) {
      if (spec.kind == WeightKind::embedding) return stored(model, directory, spec.parts[0].name);
    }
  }
  return files.at(name);
}

// Throws Error if the folder has a tensor that does not belong to the model.
void reject_unexpected_tensors(const Model& model, const std::vector<WeightSpec>& specs,
                               const ModelDirectory& directory) {
  const WeightFiles& files = directory.weights();
  std::set<std::string, std::less<>> known;
  for (const CheckpointTensor& tensor : checkpoint_tensors(specs, true)) {
    known.insert(stored(model, directory, tensor.name).name);
    for (const PartSlice& slice : tensor.slices) known.insert(slice.part->copies.begin(), slice.part->copies.end());
  }
  for (const std::string& name : files.names()) {
    if (known.contains(name) || is_derived(model, name) || are_fp8_scales(name, files)) continue;
    if (const std::string_view left = model.left_out(name); !left.empty()) {
      log_once(text_of(directory.path().string(), ": ", left, " are left out"));
      continue;
    }
    if (const std::string_view of = std::string_view(name).substr(0, name.size() - kScaleSuffix.size());
        name.ends_with(kScaleSuffix) && known.contains(of)) {
      throw Error(files.at(name).file, text_of("tensor ", name, " scales ", of, ", which is ",
                                               name_of(files.at(of).type), " instead of F8_E4M3"));
    }
    throw Error(files.at(name).file,
                text_of("tensor ", name, " is not part of this ",
                        ConfigReader(model.config()).text("model_type", "model"), " model"),
                "does config.json belong to these weights?");
  }
}

std::vector<std::byte> ones(const Type& type) {
  std::vector<std::byte> bytes(type.bytes());
  for_floating(type.dtype, [&]<class T>() {
    const T one = static_cast<T>(1.0f);
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) std::memcpy(bytes.data() + at, &one, sizeof(T));
  });
  return bytes;
}

// Converts f32 to bf16. `to` may be the same memory, because each element is read before it is overwritten.
void narrow(std::span<const float> values, std::span<std::byte> to) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const BFloat16 value(values[i]);
    std::memcpy(to.data() + i * sizeof(value), &value, sizeof(value));
  }
}

// Vocabulary size of the folder if it is smaller than that of `model`, otherwise 0.
std::int64_t smaller_vocabulary(const Model& model, const ModelDirectory& directory) {
  const std::int64_t stored = ConfigReader(directory.config()).positive("vocab_size", model.shape().vocab_size);
  return stored < model.shape().vocab_size ? stored : 0;
}

// Sets the rows of `block` [rows, columns] from index `filled` on to the mean of the rows before.
template <class T>
void fill_with_mean(std::span<std::byte> block, std::int64_t filled, std::int64_t columns) {
  T* values = reinterpret_cast<T*>(block.data());
  const std::int64_t rows = static_cast<std::int64_t>(block.size() / sizeof(T)) / columns;
  for (std::int64_t column = 0; column < columns; ++column) {
    double sum = 0;
    for (std::int64_t row = 0; row < filled; ++row) sum += static_cast<float>(values[row * columns + column]);
    const T mean = static_cast<T>(static_cast<float>(sum / static_cast<double>(filled)));
    for (std::int64_t row = filled; row < rows; ++row) values[row * columns + column] = mean;
  }
}

// Loads a part that needs changes, staged as a whole: rows from index `filled` on (0: none) become the mean of the rows
// before, and adapters are merged in f32.
void load_changed(const CheckpointTensor& tensor, const PartSlice& slice, const ScaledTensor& from, std::int64_t filled,
                  AdapterMerge& merge, TensorStore& store) {
  const WeightSpec& spec = *slice.spec;
  const std::int64_t columns = row_elements(spec);
  const auto elements = static_cast<std::size_t>(slice.elements());
  const bool fp8 = is_fp8_block(spec);
  const DType held = fp8 ? DType::kBf16 : store.type(spec.name).dtype;
  const DType staged = merge.empty() ? held : DType::kF32;
  std::vector<std::byte> rows(elements * size_of(staged));
  read_part(tensor, slice, from, staged, rows);
  if (filled > 0) for_floating(staged, [&]<class T>() { fill_with_mean<T>(rows, filled, columns); });
  if (!merge.empty()) {
    const std::span<float> values(reinterpret_cast<float*>(rows.data()), elements);
    merge.apply(*slice.part, values, columns);
    if (held != staged) narrow(values, rows);
  }
  if (fp8) {
    const std::span values(reinterpret_cast<const BFloat16*>(rows.data()), elements);
    return store_quantized(spec, slice.part->name, slice.part->row, values, store);
  }
  store.upload(spec.name, static_cast<std::size_t>(slice.part->row * columns) * size_of(held),
               std::span(rows).first(elements * size_of(held)));
}

// Throws Error if config.json of the folder differs from the model's in a key that the computation depends on.
void check_same_config(const Model& model, const ModelDirectory& directory) {
  static constexpr std::array<std::string_view, 10> kWithoutEffect{
      "dtype",     "torch_dtype",  "transformers_version", "_name_or_path", "architectures",
      "use_cache", "bos_token_id", "eos_token_id",         "pad_token_id",  kQuantizationKey};
  const auto check = [&](const Json& one, const Json& other, bool ours) {
    for (const auto& [key, value] : one.items()) {
      const Json found = other.value(key, Json());
      if (found == value || std::ranges::find(kWithoutEffect, key) != kWithoutEffect.end()) continue;
      throw Error(
          (directory.path() / "config.json").string(),
          text_of(key, " is ", (ours ? found : value).dump(), ", but the model has ", (ours ? value : found).dump()),
          "the folder must be of the same model");
    }
  };
  check(model.config(), directory.config(), true);
  check(directory.config(), model.config(), false);
}

}  // namespace

std::vector<NamedType> weight_types(const Model& model, DType dtype) {
  std::vector<NamedType> types;
  for (const WeightSpec& spec : model.weights()) {
    types.push_back({spec.name, {spec.dtype.value_or(dtype), Shape(spec.shape.begin(), spec.shape.end())}});
  }
  return types;
}

DType model_dtype(const Model& model, const TensorStore& weights) {
  for (const WeightSpec& spec : model.weights()) {
    if (const DType dtype = weights.type(spec.name).dtype; !spec.dtype && is_floating(dtype)) return dtype;
  }
  throw Defect("every weight of the model has a fixed dtype");
}

void check_weights(const Model& model, const ModelDirectory& directory, Vocabulary vocabulary) {
  const WeightFiles& files = directory.weights();
  if (files.empty()) throw Error(directory.path().string(), "there are no weights (model.safetensors) in this folder");
  check_quantization(directory.config(), (directory.path() / "config.json").string());
  check_expert_counts(model, files);
  const std::vector<WeightSpec> specs = specs_in_folder(model, files);
  reject_unexpected_tensors(model, specs, directory);
  const std::int64_t stored_vocab = vocabulary == Vocabulary::kMayGrow ? smaller_vocabulary(model, directory) : 0;
  for (const CheckpointTensor& wanted : checkpoint_tensors(specs, true)) {
    const StoredTensor& tensor = stored(model, directory, wanted.name);
    std::vector<std::int64_t> shape = wanted.shape;
    if (stored_vocab > 0 && wanted.slices.front().spec->is_by_token()) shape[0] = stored_vocab;
    if (tensor.shape == shape) {
      (void)with_scales(tensor, files);
      continue;
    }
    throw Error(tensor.file, text_of("tensor ", wanted.name, " is ", shape_text(tensor.shape),
                                     ", but config.json requires ", shape_text(shape)));
  }
}

namespace {

// The weights of a folder, and how each part of a block is loaded.
class FolderWeights {
 public:
  FolderWeights(const Model& model, const ModelDirectory& directory, DType dtype, Vocabulary vocabulary)
      : model_(model),
        directory_(directory),
        merge_(directory),
        stored_vocab_(vocabulary == Vocabulary::kMayGrow ? smaller_vocabulary(model, directory) : 0) {
    check_weights(model, directory, vocabulary);
    specs_ = specs_in_folder(model, directory.weights());
    tensors_ = checkpoint_tensors(specs_, true);
    const auto kept = [](const WeightSpec& spec) { return is_fp8_block(spec); };
    if (has_fp8(directory.weights()) && std::ranges::none_of(model.weights(), kept)) {
      log_once(text_of(directory.path().string(), ": FP8 weights are converted to ",
                       dtype == DType::kBf16 ? "bfloat16" : "float32"));
    }
  }

  [[nodiscard]] const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::vector<WeightSpec>& specs() const { return specs_; }
  void load(const CheckpointTensor& tensor, const PartSlice& slice, std::size_t piece_bytes, TensorStore& store) {
    const ScaledTensor from = with_scales(stored(model_, directory_, tensor.name), directory_.weights());
    const bool grows = stored_vocab_ > 0 && slice.spec->is_by_token();
    if (grows || !merge_.empty()) {
      load_changed(tensor, slice, from, grows ? stored_vocab_ : 0, merge_, store);
    } else if (is_fp8_block(*slice.spec)) {
      load_fp8_part(tensor, slice, from, store);
    } else {
      load_part(tensor, slice, from, store, piece_bytes);
    }
  }
  void finish() { merge_.check_all_applied(); }

 private:
  const Model& model_;
  const ModelDirectory& directory_;
  AdapterMerge merge_;
  std::int64_t stored_vocab_;
  std::vector<WeightSpec> specs_;
  std::vector<CheckpointTensor> tensors_;
};

// Loads a rank's parts of the weights into the store, one after the other; those of FP8 blocks in bf16.
void load_parts(const Model& model, const ModelDirectory& directory, DType dtype, Vocabulary vocabulary,
                TensorStore& store) {
  load_each_weight(model.whole(), directory, dtype, vocabulary, [&](std::size_t index, const TensorStore& weight) {
    const WeightSpec& spec = model.weights()[index];
    const std::vector<std::byte> part = part_of(model, index, weight);
    if (is_fp8_block(spec)) {
      const auto* values = reinterpret_cast<const BFloat16*>(part.data());
      store_quantized_parts(spec, {values, part.size() / sizeof(BFloat16)}, store);
    } else {
      store.upload(spec.name, part);
    }
    store.device().synchronize();
  });
}

}  // namespace

TensorStore load_weights(const Model& model, const ModelDirectory& directory, DType dtype, Device& device,
                         Vocabulary vocabulary, std::size_t piece_bytes) {
  TensorStore store(device, weight_types(model, dtype));
  if (&model.whole() != &model) {
    load_parts(model, directory, dtype, vocabulary, store);
    return store;
  }
  FolderWeights folder(model, directory, dtype, vocabulary);
  for (const CheckpointTensor& tensor : folder.tensors()) {
    for (const PartSlice& slice : tensor.slices) folder.load(tensor, slice, piece_bytes, store);
  }
  folder.finish();
  return store;
}

void load_each_weight(const Model& model, const ModelDirectory& directory, DType dtype, Vocabulary vocabulary,
                      const std::function<void(std::size_t index, const TensorStore& weight)>& take) {
  FolderWeights folder(model, directory, dtype, vocabulary);
  struct Slice {
    const CheckpointTensor* tensor = nullptr;
    const PartSlice* slice = nullptr;
  };
  std::map<const WeightSpec*, std::vector<Slice>> slices;
  for (const CheckpointTensor& tensor : folder.tensors()) {
    for (const PartSlice& slice : tensor.slices) slices[slice.spec].push_back({&tensor, &slice});
  }
  const std::vector<NamedType> types = weight_types(model, dtype);
  for (std::size_t i = 0; i < types.size(); ++i) {
    TensorStore weight(cpu_device(), std::span(&types[i], 1));
    for (const Slice& each : slices[&folder.specs()[i]]) folder.load(*each.tensor, *each.slice, kPieceBytes, weight);
    take(i, weight);
  }
  folder.finish();
}

void reload_weights(const Model& model, const ModelDirectory& directory, TensorStore& weights, bool& begun) {
  if (!directory.adapters().empty())
    throw Error(directory.path().string(), "this folder holds an adapter", "hone merge makes a model's folder of it");
  check_same_config(model, directory);
  check_weights(model.whole(), directory);
  begun = true;
  if (&model.whole() != &model) {
    return load_parts(model, directory, model_dtype(model, weights), Vocabulary::kAsStored, weights);
  }
  const std::vector<WeightSpec> specs = specs_in_folder(model, directory.weights());
  for (const CheckpointTensor& tensor : checkpoint_tensors(specs, true)) {
    const ScaledTensor from = with_scales(stored(model, directory, tensor.name), directory.weights());
    for (const PartSlice& slice : tensor.slices) {
      if (is_fp8_block(*slice.spec)) {
        load_fp8_part(tensor, slice, from, weights);
      } else {
        load_part(tensor, slice, from, weights, kPieceBytes);
      }
    }
  }
}

namespace {

// Appends the nodes that fill the parts of a block with normal numbers.
void fill_normal(Program& program, const WeightSpec& spec, DType dtype, std::uint64_t seed, double deviation) {
  Tensor weight = program.weight(spec.name, {dtype, Shape(spec.shape.begin(), spec.shape.end())});
  for (const WeightPart& part : spec.parts) {
    weight = normal_fill(weight, {.key = static_cast<std::int64_t>(RandomStream(seed, part.name).key()),
                                  .deviation = deviation * spec.deviation,
                                  .first = part.row * row_elements(spec),
                                  .count = part.rows * row_elements(spec)});
  }
}

// Fills an FP8 block with what the same numbers in bf16 are quantized to.
void fill_quantized(const WeightSpec& spec, std::uint64_t seed, double deviation, TensorStore& store) {
  const NamedType plain{spec.name, {DType::kBf16, Shape(spec.shape.begin(), spec.shape.end())}};
  TensorStore values(store.device(), {&plain, 1});
  if (spec.initializer != Initializer::kZeros) {
    Program program;
    fill_normal(program, spec, DType::kBf16, seed, deviation);
    Executable(program, std::make_shared<Arena>(store.device()), {.weights = &values}).run();
  }
  const std::vector<std::byte> bytes = values.download(spec.name);
  const std::span all(reinterpret_cast<const BFloat16*>(bytes.data()), bytes.size() / sizeof(BFloat16));
  for (const WeightPart& part : spec.parts) {
    store_quantized(spec, part.name, part.row,
                    all.subspan(static_cast<std::size_t>(part.row * row_elements(spec)),
                                static_cast<std::size_t>(part.rows * row_elements(spec))),
                    store);
  }
}

}  // namespace

TensorStore random_weights(const Model& model, std::uint64_t seed, DType dtype, Device& device) {
  HONE_ASSERT(dtype == DType::kF32 || dtype == DType::kBf16, "weights of ", name_of(dtype));
  register_operations();
  const double deviation = ConfigReader(model.config()).number("initializer_range", 0.02);
  TensorStore store(device, weight_types(model, dtype));
  Program program;
  for (const WeightSpec& spec : model.weights()) {
    if (is_fp8_block(spec)) {
      fill_quantized(spec, seed, deviation, store);
    } else if (spec.initializer == Initializer::kOnes) {
      store.upload(spec.name, ones(store.type(spec.name)));
    } else if (spec.initializer != Initializer::kZeros) {  // stores are zero-filled
      fill_normal(program, spec, store.type(spec.name).dtype, seed, deviation);
    }
  }
  Executable(program, std::make_shared<Arena>(device), {.weights = &store}).run();
  device.synchronize();
  return store;
}

TensorStore random_weight(const Model& model, const WeightSpec& spec, std::uint64_t seed, DType dtype, Device& device) {
  HONE_ASSERT(!is_fp8_block(spec), spec.name, " is quantized");
  register_operations();
  const NamedType type{spec.name, {dtype, Shape(spec.shape.begin(), spec.shape.end())}};
  TensorStore store(device, {&type, 1});
  if (spec.initializer == Initializer::kOnes) {
    store.upload(spec.name, ones(type.type));
  } else if (spec.initializer != Initializer::kZeros) {
    Program program;
    fill_normal(program, spec, dtype, seed, ConfigReader(model.config()).number("initializer_range", 0.02));
    Executable(program, std::make_shared<Arena>(device), {.weights = &store}).run();
  }
  device.synchronize();
  return store;
}

void save_model(const std::filesystem::path& path, const Model& model, const TensorStore& weights,
                const Json* generation_config) {
  const std::vector<TensorSource> sources = weight_sources(model.weights(), true, weights);
  Json config = model.config();
  config.erase(std::string(kQuantizationKey));  // FP8 weights that were read have been converted
  const DType dtype = model_dtype(model, weights);
  const char* name = dtype == DType::kBf16 ? "bfloat16" : "float32";
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = name;
  write_model_directory(path, {.config = config, .generation_config = generation_config, .weights = sources});
}

}  // namespace hone
